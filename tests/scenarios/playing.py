"""Small workloads, and two ways to play the whole loop on them: in this process and over HTTP.

Both keep every plan and what it was made from. Nothing here waits for a real clock.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import aiohttp

from autoscaler.loop import Loop
from autoscaler.ports import Recorder
from autoscaler.scale_client import ScaleClient
from autoscaler.state import LearnedState
from autoscaler.tick import Phasewise
from autoscaler.types import Decision, Plan, TierSettings
from collector.observe import ObserverSettings
from collector.scrape import Scraper
from phasewise.backtesting import SCRAPE_INTERVAL_S, TICK_S
from phasewise.direct import DirectTier
from phasewise.http_tier import HttpTier, LockstepClock
from phasewise.tier_setup import simulation_plan, tier_settings
from serving.schema.tier import Tier
from serving.simulation.faults import Fault
from serving.simulation.readings import RouterSource
from serving.simulation.server import RouterPageKind, SimulatedTierServer
from serving.simulation.summary import outcome_of
from serving.simulation.tier import SimulatedTier
from serving.simulation.traffic import Request
from serving.types import Observation, Phase

SCRAPES_PER_TICK = round(TICK_S / SCRAPE_INTERVAL_S)
OnTick = Callable[[Plan, tuple[Observation, ...]], None]


@dataclass(kw_only=True)
class Played:
    """What a run left behind: its plans, the observations behind each, and the tier's account."""

    plans: list[Plan] = field(default_factory=list)
    observations: list[tuple[Observation, ...]] = field(default_factory=list)
    outcome: dict[str, Any] = field(default_factory=dict)
    state: Any = None

    def note(self, plan: Plan, observations: tuple[Observation, ...]) -> None:
        self.plans.append(plan)
        self.observations.append(observations)

    def decisions(self, pool: str, *, from_s: float = 0.0, to_s: float = 1e9) -> list[Decision]:
        """The decisions of one pool after `from_s` and up to `to_s`."""
        return [
            decision
            for plan in self.plans
            if from_s < plan.at_s <= to_s
            for decision in plan.decisions
            if decision.pool.name == pool
        ]

    def desired(self, pool: str, *, from_s: float = 0.0, to_s: float = 1e9) -> list[int]:
        """What the pool was asked to have by each tick; every size must be known."""
        found = [d.replicas for d in self.decisions(pool, from_s=from_s, to_s=to_s)]
        assert None not in found
        return [replicas for replicas in found if replicas is not None]

    def sizes_at(self, at_s: float) -> dict[str, int | None]:
        """What each pool was asked to have by the last tick up to a time."""
        (*_, plan) = (plan for plan in self.plans if plan.at_s <= at_s)
        return {d.pool.name: d.replicas for d in plan.decisions}


def traffic(
    stretches: Sequence[tuple[float, float, float]],
    *,
    input_tokens: int,
    output_tokens: int,
    seed: int = 5,
) -> list[Request]:
    """Requests that arrive as (seconds, rate at its start, rate at its end) stretches say.

    Evenly spaced but for a jitter of half the gap; lengths vary by a fifth.
    """
    rng = random.Random(seed)
    found: list[Request] = []
    start_s = at_s = 0.0
    for length_s, first_per_s, last_per_s in stretches:
        while at_s < start_s + length_s:
            rate = first_per_s + (last_per_s - first_per_s) * (at_s - start_s) / length_s
            found.append(
                Request(
                    round(at_s + rng.uniform(0.0, 0.5) / rate, 3),
                    round(input_tokens * rng.uniform(0.8, 1.2)),
                    round(output_tokens * rng.uniform(0.8, 1.2)),
                )
            )
            at_s += 1.0 / rate
        start_s += length_s
    return sorted(found)


def trace_text(requests: Sequence[Request]) -> str:
    """The requests as the text of a trace file."""
    rows = [f"{r.arrival_s:.3f},{r.input_tokens},{r.output_tokens}" for r in requests]
    return "\n".join(["t_s,input_tokens,output_tokens", *rows]) + "\n"


def play_directly(
    tier: Tier,
    requests: Sequence[Request],
    sizes: Mapping[str, int],
    *,
    until_s: float,
    router: RouterSource | None = "epp",
    faults: Sequence[tuple[float, Fault]] = (),
    recorder: Callable[[TierSettings, LearnedState], Recorder] | None = None,
    on_tick: OnTick | None = None,
    seed: int = 1,
) -> Played:
    """The loop against a tier in this process."""
    settings = tier_settings(tier, tick_s=TICK_S)
    simulated = SimulatedTier(simulation_plan(tier, sizes), requests, seed=seed)
    direct = DirectTier(simulated, settings, until_s=until_s, router=router, faults=faults)
    policy, played = Phasewise(settings), Played()
    state = policy.start()

    def note(plan: Plan, observations: tuple[Observation, ...]) -> None:
        played.note(plan, observations)
        if on_tick is not None:
            on_tick(plan, observations)

    loop = Loop(
        policy=policy,
        clock=direct,
        source=direct,
        actuator=direct,
        scrapes_per_tick=SCRAPES_PER_TICK,
        recorder=None if recorder is None else recorder(settings, state),
        on_tick=note,
    )
    played.state = asyncio.run(loop.run(state))
    played.outcome = outcome_of(simulated, slo=settings.slo)
    return played


class FaultyClock:
    """A clock that lets faults begin at the control endpoint, as a person with curl would."""

    def __init__(
        self,
        clock: LockstepClock,
        session: aiohttp.ClientSession,
        base_url: str,
        faults: Sequence[tuple[float, Fault]],
    ) -> None:
        self._clock = clock
        self._session = session
        self._base_url = base_url
        self._faults = sorted(faults, key=lambda timed: timed[0])

    async def next_scrape(self) -> float | None:
        now_s = await self._clock.next_scrape()
        while now_s is not None and self._faults and self._faults[0][0] <= now_s:
            body = asdict(self._faults.pop(0)[1])
            async with self._session.post(f"{self._base_url}/faults", json=body) as answer:
                assert answer.status == 200, await answer.text()
        return now_s


async def play_over_http(
    tier: Tier,
    requests: Sequence[Request],
    sizes: Mapping[str, int],
    *,
    until_s: float,
    router: RouterPageKind = "epp",
    faults: Sequence[tuple[float, Fault]] = (),
    seed: int = 1,
) -> Played:
    """The loop against the same tier behind real sockets, in this process too."""
    settings = tier_settings(tier, tick_s=TICK_S)
    simulated = SimulatedTier(simulation_plan(tier, sizes), requests, seed=seed)
    policy, played = Phasewise(settings), Played()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(SimulatedTierServer(simulated, router_page=router))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        scraper = await stack.enter_async_context(Scraper())
        source = HttpTier(
            settings,
            discovery_url=f"{server.address}/sd",
            scraper=scraper,
            scale=ScaleClient(session, base_url=server.address),
            observer=ObserverSettings(),
        )
        clock = LockstepClock(
            session, base_url=server.address, interval_s=SCRAPE_INTERVAL_S, until_s=until_s
        )
        loop = Loop(
            policy=policy,
            clock=FaultyClock(clock, session, server.address, faults),
            source=source,
            actuator=source,
            scrapes_per_tick=SCRAPES_PER_TICK,
            on_tick=played.note,
        )
        played.state = await loop.run(policy.start())
    played.outcome = outcome_of(simulated, slo=settings.slo)
    return played


def aggregated(tier: Tier, *, most: int) -> Tier:
    """The same tier with one pool that does both phases."""
    (first, *_) = tier.spec.pools
    replicas = first.replicas.model_copy(update={"max": most})
    pool = first.model_copy(update={"name": "all", "phase": Phase.BOTH, "replicas": replicas})
    spec = tier.spec.model_copy(update={"pools": (pool,)})
    return tier.model_copy(update={"spec": spec})


def quick_start(tier: Tier, *, seconds: float) -> Tier:
    """The same tier with replicas that take so long to start."""
    pools = tuple(
        pool.model_copy(update={"startup": pool.startup.model_copy(update={"seconds": seconds})})
        for pool in tier.spec.pools
    )
    return tier.model_copy(update={"spec": tier.spec.model_copy(update={"pools": pools})})


def without_words(plan: Plan) -> Plan:
    """A plan but for what it says: over HTTP a page that does not answer has another reason."""
    return replace(plan, decisions=tuple(replace(d, words="", steps=()) for d in plan.decisions))
