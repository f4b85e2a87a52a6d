"""A local tier of real engines with phasewise's loop over it, for tests of what goes wrong.

Brought up as `phasewise local up`, steered as `phasewise run` does; processes of it can be killed
and its network shaped. Everything ends with the block that began it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from autoscaler.loop import Loop
from autoscaler.scale_client import ScaleClient
from autoscaler.tick import Phasewise
from autoscaler.types import Plan
from collector.observe import ObserverSettings
from collector.scrape import Scraper
from phasewise.http_tier import HttpTier, WallClock
from phasewise.tier_setup import tier_settings
from phasewise.vllm_demo.local_process import LocalProcess
from phasewise.vllm_demo.scenario import SCRAPE_INTERVAL_S, paced
from serving.load.asking import Prompts
from serving.load.generator import LoadSettings, play
from serving.load.outcomes import RequestOutcome
from serving.load.schedule import Planned
from serving.schema.tier import load_tier
from serving.types import Observation

_CLONE_NEWNET = 0x40000000
_DECODED_BY = re.compile(r"___decode_addr_([\d.]+:\d+)")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")


def unix_s() -> float:
    """The time of this machine."""
    return time.time()  # noqa: TID251 - the edge


@dataclass
class Steered:
    """What is up. `plans` are what phasewise thought, newest last."""

    process: LocalProcess
    model: str
    plans: list[Plan] = field(default_factory=list)
    seen: list[Observation] = field(default_factory=list)

    async def events(self, since_s: float) -> list[dict[str, Any]]:
        """What the local tier says happened since a time."""
        found: list[dict[str, Any]] = await self.process.ask("/events")
        return [event for event in found if event["at_s"] >= since_s]

    async def replica(self, phase: str, *, most: str = "requests") -> dict[str, Any]:
        """The ready replica of a phase that has most of something."""
        replicas = (await self.process.ask("/status"))["replicas"]
        ready = [r for r in replicas if r["phase"] == phase and r["state"] == "ready"]
        found: dict[str, Any] = max(ready, key=lambda r: r[most] or 0.0)
        return found

    async def until_event(
        self, kinds: set[str], since_s: float, *, within_s: float
    ) -> dict[str, Any]:
        """The first event of such a kind."""
        end_s = time.monotonic() + within_s
        while True:
            for event in await self.events(since_s):
                if event["kind"] in kinds:
                    return event
            assert time.monotonic() < end_s, f"no {kinds} within {within_s:g} s"
            await asyncio.sleep(0.2)

    async def kill(self, name: str) -> float:
        """SIGKILL to every process of a replica or the router; when that was."""
        for process in await self.process.ask("/processes"):
            if process["replica"] == name:
                at_s = unix_s()
                for pid in process["members"]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                return at_s
        raise AssertionError(f"{name} is not there")

    async def sums(self, phase: str, name: str) -> float:
        """A series of the pages of a phase, summed over its ready replicas."""
        found = 0.0
        for replica in (await self.process.ask("/status"))["replicas"]:
            if replica["phase"] != phase or replica["state"] != "ready":
                continue
            async with (
                aiohttp.ClientSession(trust_env=False) as session,
                session.get(f"http://{replica['address']}/metrics") as answer,
            ):
                page = await answer.text()
            for line in page.splitlines():
                if line.startswith(name):
                    found += float(line.rsplit(" ", 1)[1])
        return found


class Load:
    """An open-loop load under way, with the time at which it began."""

    def __init__(self, steered: Steered, schedule: list[Planned], *, seed: int) -> None:
        self.outcomes: list[RequestOutcome] = []
        self.sent = 0
        self.began_s = unix_s()
        self._task = asyncio.create_task(
            play(
                steered.process.router,
                schedule,
                LoadSettings(model=steered.model, prompts=Prompts(seed=seed), timeout_s=120.0),
                on_outcome=self.outcomes.append,
                on_sent=self._count,
            )
        )

    def _count(self) -> None:
        self.sent += 1

    @property
    def under_way(self) -> int:
        """Sent and not ended."""
        return self.sent - len(self.outcomes)

    async def done(self) -> tuple[RequestOutcome, ...]:
        """Every outcome."""
        return (await self._task).requests

    def failed(self) -> list[RequestOutcome]:
        """Those that failed so far."""
        return [one for one in self.outcomes if one.failure is not None]


def decoded_by(outcome: RequestOutcome) -> str | None:
    """The decode replica's address, by the name that the router gave the answer."""
    found = _DECODED_BY.search(outcome.answer_id or "")
    return None if found is None else found[1]


def blamed(outcome: RequestOutcome) -> str | None:
    """The replica that a failed request fell with: by its answer's name or the router's words."""
    found = _ADDRESS.search(outcome.words)
    return decoded_by(outcome) or (None if found is None else found[0])


@asynccontextmanager
async def steered_tier(tier_file: Path, folder: Path, *more: str) -> AsyncIterator[Steered]:
    """The tier, ready, under a loop that acts. `more` are options of `local up`."""
    tier = load_tier(tier_file)
    settings = paced(tier_settings(tier))
    process = LocalProcess(tier_file, folder, say=print, more=more)
    steered = Steered(process=process, model=tier.spec.model)

    def on_tick(plan: Plan, observations: tuple[Observation, ...]) -> None:
        steered.plans.append(plan)
        steered.seen.extend(observations)

    try:
        await process.start(on_listening=lambda: None)
        async with (
            Scraper(timeout_s=SCRAPE_INTERVAL_S) as scraper,
            aiohttp.ClientSession(trust_env=False) as session,
        ):
            source = HttpTier(
                settings,
                discovery_url=f"{process.control}/sd",
                scraper=scraper,
                scale=ScaleClient(session, base_url=process.control),
                observer=ObserverSettings(),
                model=tier.spec.model,
            )
            policy = Phasewise(settings)
            loop = Loop(
                policy=policy,
                clock=WallClock(unix_s=unix_s, interval_s=SCRAPE_INTERVAL_S),
                source=source,
                actuator=source,
                scrapes_per_tick=round(settings.tick_s / SCRAPE_INTERVAL_S),
                on_tick=on_tick,
            )
            running = asyncio.create_task(loop.run(policy.start()))
            try:
                yield steered
                assert not running.done(), running
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running
    finally:
        await process.stop()


def in_own_network(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run something in a network namespace of its own, with nothing in it but loopback.

    The namespace is a thread's, and of the processes that the thread starts. Skips the test where
    none may be made.
    """
    wrong: list[BaseException] = []
    refused: list[str] = []

    def run() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNET) != 0:
            refused.append(os.strerror(ctypes.get_errno()))
            return
        try:
            command("ip link set lo up")
            asyncio.run(work())
        except BaseException as error:  # noqa: BLE001 - raised again where the test runs
            wrong.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if refused:
        pytest.skip(f"no network namespace can be made here: {refused[0]}")
    if wrong:
        raise wrong[0]


def command(words: str) -> None:
    """A system command that must work."""
    done = subprocess.run(words.split(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
