"""One engine of a local tier: its process, what it answers, and where it is in its life.

Asks the engine and keeps what it said; what follows from that is the supervisor's. A replica keeps
its process when it flips, and takes a new name with its new pool: to whoever reads pages it is a
replica that has come, with counters of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from serving.errors import Unavailable
from serving.local.child import Child
from serving.local.cpu_quota import CpuGroup
from serving.local.figures import UNKNOWN_FIGURES, Figures, engine_figures
from serving.local.startups import StartLog
from serving.local.states import LocalState, Replica
from serving.types import Phase, StartStage


class EngineCommand(Protocol):
    """How an engine is started: a command line, what is added to its environment, its port."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line."""

    @property
    def env(self) -> Mapping[str, str]:
        """What is added to the environment."""

    @property
    def http_port(self) -> int:
        """Where it will listen, on 127.0.0.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSetup:
    """What the supervisor needs to know of a pool, from the tier document."""

    name: str
    phase: Phase
    variant: str
    initial: int
    most: int
    may_flip: bool = True
    cpu_cores: float | None = None
    kv_lease_s: float = 30.0


class LocalReplica:
    """One engine. `name` and `pool` change when it flips; `engine` is its first name, for good."""

    def __init__(self, name: str, pool: PoolSetup, *, asked_s: float) -> None:
        self.name = self.engine = name
        self.pool = pool
        self.asked_s = asked_s
        self.state = LocalState.STARTING
        self.start = StartLog(name, pool.name, asked_s=asked_s)
        self.command: EngineCommand | None = None
        self.child: Child | None = None
        self.group: CpuGroup | None = None
        self.task: asyncio.Task[None] | None = None
        self.ready_s: float | None = None
        self.flip_to: str | None = None
        self.flip_name = ""
        self.drained = self.ending = self.flipped = False
        self.drain_since_s: float | None = None
        self.empty_since_s: float | None = None
        self.figures: Figures = UNKNOWN_FIGURES
        self.answered_s: float | None = None
        self.refusals = 0
        self.silent = False
        self.why_ending = ""

    @property
    def address(self) -> str:
        """`host:port`; empty before it has one."""
        return "" if self.command is None else f"127.0.0.1:{self.command.http_port}"

    @property
    def stage(self) -> StartStage | None:
        """How far its start is; `None` once it serves."""
        return self.start.stage if self.state is LocalState.STARTING else None

    @property
    def view(self) -> Replica:
        """As the plan sees it."""
        return Replica(
            name=self.name,
            pool=self.pool.name,
            state=self.state,
            asked_s=self.asked_s,
            stage=self.stage,
            ready_s=self.ready_s,
            requests=self.figures.requests,
            kv_ratio=self.figures.kv_ratio,
            flip_to=self.flip_to,
            drained=self.drained,
            ending=self.ending,
        )

    async def is_healthy(self, session: aiohttp.ClientSession, *, timeout_s: float) -> bool | None:
        """Its own word on its health; `None` if it does not answer."""
        try:
            timeout = aiohttp.ClientTimeout(total=timeout_s)
            async with session.get(f"http://{self.address}/health", timeout=timeout) as answer:
                return answer.status == 200
        except (TimeoutError, aiohttp.ClientError, OSError):
            return None

    async def read_page(self, session: aiohttp.ClientSession, *, timeout_s: float) -> bool:
        """Take new figures from its page; those from before stay if it does not answer."""
        page = await fetch_text(session, f"http://{self.address}/metrics", timeout_s=timeout_s)
        if page is None:
            return False
        self.figures = engine_figures(page)
        return True

    async def first_answer(
        self, session: aiohttp.ClientSession, model: str, *, timeout_s: float
    ) -> None:
        """Let it make one token. Raises `Unavailable` if it does not."""
        await one_token(session, f"http://{self.address}", model, timeout_s=timeout_s)


async def fetch_text(session: aiohttp.ClientSession, url: str, *, timeout_s: float) -> str | None:
    """A page's text; `None` if there is no whole answer with status 200."""
    try:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with session.get(url, timeout=timeout) as answer:
            return await answer.text(errors="replace") if answer.status == 200 else None
    except (TimeoutError, aiohttp.ClientError, OSError):
        return None


async def one_token(
    session: aiohttp.ClientSession, url: str, model: str, *, timeout_s: float
) -> None:
    """A completion of one token from an engine or the router. Raises `Unavailable`."""
    body = {"model": model, "prompt": [11, 12, 13], "max_tokens": 1, "temperature": 0.0}
    try:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with session.post(f"{url}/v1/completions", json=body, timeout=timeout) as answer:
            if answer.status != 200:
                words = (await answer.text(errors="replace"))[:200]
                raise Unavailable(f"{url} answered {answer.status} to its first request: {words}")
            await answer.read()
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        why = str(error)[:200] or type(error).__name__
        raise Unavailable(f"{url} did not answer its first request: {why}") from error
