"""Our own policy over real HTTP: the tier in a process of its own, the loop in this one.

What the demo runs. The tier's process is ended whatever happens here, and ends by itself if this
one is killed: it holds the other end of a pipe.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from autoscaler.ledger import Ledger
from autoscaler.loop import Loop
from autoscaler.scale_client import ScaleClient
from autoscaler.tick import Phasewise
from autoscaler.types import Plan, TierSettings
from collector.observe import ObserverSettings
from collector.scrape import Scraper
from phasewise.backtesting import SCRAPE_INTERVAL_S, TICK_S
from phasewise.console import Show, show_nowhere
from phasewise.http_tier import HttpTier, LockstepClock
from phasewise.metering import Sink
from phasewise.recording import LedgerRecorder
from phasewise.telling import meter_of
from phasewise.tier_board import TierBoard
from serving.errors import Unavailable
from serving.types import Observation

_STARTS_WITHIN_S = 120.0
_STOPS_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierProcess:
    """A running `phasewise simulate`: its addresses, and the process."""

    control: str
    http_sd: str
    end_s: float
    process: asyncio.subprocess.Process

    async def stop(self) -> None:
        """End it; by force if it does not end by itself."""
        if self.process.returncode is None:
            self.process.terminate()
            try:
                async with asyncio.timeout(_STOPS_WITHIN_S):
                    await self.process.wait()
            except TimeoutError:
                await _kill(self.process)


async def _kill(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()


async def start_tier(arguments: Sequence[str]) -> TierProcess:
    """Start `phasewise simulate` and wait until it listens. Raises Unavailable if it does not."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "phasewise",
        "simulate",
        "--until-stdin-closes",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_STARTS_WITHIN_S):
            line = await process.stdout.readline()
        if not line:
            why = (await process.stderr.read()).decode(errors="replace").strip()
            await process.wait()
            raise Unavailable(f"the simulated tier did not start: {why[-300:]}")
        found: dict[str, Any] = json.loads(line)
    except (TimeoutError, ValueError) as error:
        await _kill(process)
        raise Unavailable(f"the simulated tier did not say where it listens: {error}") from error
    except asyncio.CancelledError:
        await _kill(process)
        raise
    return TierProcess(
        control=found["control"], http_sd=found["http_sd"], end_s=found["end_s"], process=process
    )


async def steer(
    settings: TierSettings,
    tier: TierProcess,
    *,
    ledger_file: Path,
    until_s: float,
    speed: float | None,
    on_tick: Callable[[Plan, tuple[Observation, ...]], None],
    show: Show = show_nowhere,
    sinks: Sequence[Sink] = (),
) -> None:
    """Run the loop over HTTP to the end of the trace, from nothing learned."""
    policy = Phasewise(settings)
    meter = meter_of(sinks, settings.slo)
    async with AsyncExitStack() as stack:
        ledger = Ledger(ledger_file, fresh=True)
        stack.callback(ledger.close)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        scraper = await stack.enter_async_context(Scraper())
        source = HttpTier(
            settings,
            discovery_url=tier.http_sd,
            scraper=scraper,
            scale=ScaleClient(session, base_url=tier.control),
            observer=ObserverSettings(),
        )
        state = policy.start()
        board = TierBoard(settings, mode="act", ledger=ledger)
        stack.callback(board.let_go)  # before the ledger is closed
        show(board)

        def noted(plan: Plan, observations: tuple[Observation, ...]) -> None:
            meter.on_tick(plan, observations)
            board.note(plan, observations)
            on_tick(plan, observations)

        loop = Loop(
            policy=meter.policy(policy),
            clock=LockstepClock(
                session,
                base_url=tier.control,
                interval_s=SCRAPE_INTERVAL_S,
                until_s=until_s,
                speed=speed,
            ),
            source=meter.source(source),
            actuator=source,
            scrapes_per_tick=round(TICK_S / SCRAPE_INTERVAL_S),
            recorder=LedgerRecorder(
                ledger, settings, state, acts=True, max_age_s=14 * 86400.0, max_bytes=1 << 30
            ),
            on_tick=noted,
        )
        await loop.run(state)


async def outcome(tier: TierProcess, settings: TierSettings) -> dict[str, Any]:
    """What became of the requests, from the tier's own books."""
    query = f"?ttft_s={settings.slo.ttft_s!r}&itl_s={settings.slo.itl_s!r}"
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{tier.control}/outcome{query}") as answer,
    ):
        found: dict[str, Any] = await answer.json()
        return found
