"""A local tier of fake engines in real processes, with times short enough for a test."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from serving.local.events import Event, EventKind
from serving.local.replica import PoolSetup
from serving.local.setup import Timing
from serving.local.supervisor import LocalTier
from serving.types import Phase, StartKind

ENGINE = Path(__file__).with_name("fake_engine.py")
ROUTER = Path(__file__).with_name("fake_router.py")
WITHIN_S = 30.0
QUICK = Timing(look_s=0.05, page_s=0.05, silent_s=10.0, hung_s=20.0, grace_s=1.0, soon_s=0.0)
IMPATIENT = replace(QUICK, answer_s=0.3, silent_s=0.5, hung_s=1.5)


@dataclass(frozen=True)
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    http_port: int = 0


@dataclass
class FakeLauncher:
    """Fake engines, and a fake router that keeps the real one's lists."""

    engine_options: dict[str, Sequence[str]] = field(default_factory=dict)
    has_router: bool = True
    forgets_s: float = 1.0
    fetched: list[str] = field(default_factory=list)
    may_fetch: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_fetch.set()

    async def weights(self, pool: str) -> bool | None:
        self.fetched.append(pool)
        first = len(self.fetched) == 1
        await self.may_fetch.wait()
        return first

    def next_start(self, pool: str) -> StartKind | None:
        return StartKind.WARM if self.fetched else StartKind.COLD

    def engine(self, pool: str, *, name: str, http_port: int, **_: int) -> Command:
        options = self.engine_options.get(pool, ())
        argv = (sys.executable, "-S", str(ENGINE), "--port", str(http_port), *options)
        return Command(argv=argv, http_port=http_port)

    def router(self, *, http_port: int, metrics_port: int, discovery_port: int) -> Command | None:
        if not self.has_router:
            return None
        ports = (http_port, metrics_port, discovery_port)
        argv = (sys.executable, str(ROUTER), *map(str, ports), str(self.forgets_s))
        return Command(argv=argv)


def pool(name: str, phase: Phase, initial: int = 1, **more: Any) -> PoolSetup:
    return PoolSetup(
        name=name, phase=phase, variant="v", initial=initial, most=4, kv_lease_s=1.0, **more
    )


PAIR = (pool("prefill", Phase.PREFILL), pool("decode", Phase.DECODE))
MakeTier = Callable[..., Awaitable[LocalTier]]


async def until(true: Callable[[], Any], what: str) -> None:
    """Wait for something that real processes do; the time is a limit, not a measurement."""
    end_s = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < end_s, what
        await asyncio.sleep(0.02)


def told(tier: LocalTier, kind: EventKind) -> list[Event]:
    return [event for event in tier.events if event.kind is kind]


async def heard(tier: LocalTier, kind: EventKind, count: int = 1) -> list[Event]:
    await until(
        lambda: len(told(tier, kind)) >= count,
        f"{count} of {kind} in {[e.words for e in tier.events]}",
    )
    return told(tier, kind)
