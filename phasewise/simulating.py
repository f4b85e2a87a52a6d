"""`phasewise simulate`: a simulated tier behind real sockets until a signal ends it."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from phasewise.comparison import resolve_volume, trace_path
from phasewise.ending import on_closed_stdin
from phasewise.tier_setup import simulation_plan
from phasewise.workload import SPREAD_S, mean_need, scaled, trace_means
from serving.errors import Misconfigured
from serving.schema.tier import Tier, demo_tier_path, load_tier
from serving.simulation.server import RouterPageKind, SimulatedTierServer
from serving.simulation.tier import SimulatedTier
from serving.simulation.traffic import load_trace, multiply


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """The options of the command, as given."""

    tier_file: Path | None
    trace: str
    volume: str
    seed: int
    port: int
    router_page: str
    lockstep: bool
    speed: float
    initial: str | None
    until_stdin_closes: bool = False


def initial_of(text: str | None, tier: Tier) -> dict[str, int] | None:
    """Sizes from `prefill=8,decode=9`; `None` if not given."""
    if text is None:
        return None
    names = [pool.name for pool in tier.spec.pools]
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        if name not in names or not number.isdecimal():
            raise Misconfigured(
                "no such size at the start",
                where="--initial",
                found=repr(part),
                expected=f"pool=number, with a pool of {', '.join(names)}",
            )
        sizes[name] = int(number)
    return sizes


def build(asked: SimulationRequest, *, start_s: float) -> SimulatedTier:
    """The tier with its traffic, nothing played yet; its time begins at `start_s`."""
    tier = load_tier(asked.tier_file or demo_tier_path())
    base = load_trace(trace_path(asked.trace))
    volume = resolve_volume(tier, base, asked.volume)
    need = mean_need(tier, scaled(trace_means(base), volume))
    sizes = need.initial(tier) | (initial_of(asked.initial, tier) or {})
    requests = multiply(base, copies=volume, spread_s=SPREAD_S, seed=asked.seed)
    return SimulatedTier(simulation_plan(tier, sizes), requests, seed=asked.seed, start_s=start_s)


async def simulate(asked: SimulationRequest, *, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; announces one line of JSON once everything listens.

    Where asked, also until standard input closes: what was started by another ends with it.
    """
    if asked.router_page not in get_args(RouterPageKind):
        raise Misconfigured(
            "no such router page",
            where="--router-page",
            found=repr(asked.router_page),
            expected=", ".join(get_args(RouterPageKind)),
        )
    if not 0 <= asked.port <= 65_535:
        raise Misconfigured(
            "no such port",
            where="--port",
            found=str(asked.port),
            expected="1 to 65535, or 0 for any free one",
        )
    if not 0.0 < asked.speed <= 10_000.0:
        raise Misconfigured(
            "no such speed", where="--speed", found=f"{asked.speed:g}", expected="0 to 10000"
        )
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, ended.set)
    if asked.until_stdin_closes:
        on_closed_stdin(lambda: loop.call_soon_threadsafe(ended.set))
    # on the wall clock its times are Unix times, as those of whoever looks at it
    start_s = 0.0 if asked.lockstep else time.time()  # noqa: TID251 - the edge
    server = SimulatedTierServer(
        build(asked, start_s=start_s),
        router_page=cast(RouterPageKind, asked.router_page),
        mode="lockstep" if asked.lockstep else "wall",
        speed=asked.speed,
        port=asked.port,
    )
    async with server:
        announce(
            json.dumps(
                {
                    "control": server.address,
                    "http_sd": f"{server.address}/sd",
                    "end_s": server.tier.end_s,
                }
            )
        )
        await ended.wait()
