"""One policy on one trace against a simulated tier, at full speed and without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autoscaler.loop import Loop
from autoscaler.policies import Capacity, RatePolicy, StaticSize
from autoscaler.ports import Recorder
from autoscaler.tick import Phasewise, Policy
from autoscaler.types import Plan, TierSettings
from phasewise.direct import DirectTier
from phasewise.scoring import Score, changes_of, score
from phasewise.tier_setup import simulation_plan, tier_settings
from phasewise.workload import MeanNeed
from serving.schema.tier import Tier
from serving.simulation.faults import Fault
from serving.simulation.readings import RouterSource
from serving.simulation.summary import outcome_of
from serving.simulation.tier import SimulatedTier
from serving.simulation.traffic import Request
from serving.types import Observation, Phase

DRAIN_S = 120.0  # after the last arrival: answers may finish, then the run ends
SCRAPE_INTERVAL_S = 5.0
TICK_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice:
    """A policy and its one knob, as plain values that another process can be sent."""

    name: str
    headroom_ratio: float | None = None
    prefill_replicas: int | None = None
    decode_replicas: int | None = None


POLICIES = ("phasewise", "static_peak", "best_static", "pinned_ratio", "last_value")


def make_policy(choice: PolicyChoice, settings: TierSettings, need: MeanNeed) -> Policy:
    """The policy itself. Peers are given the capacity and the mean ratio that ours must learn."""
    if choice.name == "phasewise":
        return Phasewise(settings)
    if choice.prefill_replicas is not None and choice.decode_replicas is not None:
        sizes = {
            Phase.PREFILL: choice.prefill_replicas,
            Phase.DECODE: choice.decode_replicas,
            Phase.BOTH: choice.prefill_replicas + choice.decode_replicas,
        }
        return StaticSize(settings, name=choice.name, replicas=sizes)
    return RatePolicy(
        settings,
        name=choice.name,
        capacity=Capacity(
            prefill_tokens_per_s=need.capacity.prefill_tokens_per_s,
            decode_tokens_per_s=need.capacity.decode_tokens_per_s,
        ),
        headroom_ratio=choice.headroom_ratio or 0.0,
        pinned_ratio=need.prefill_replicas / need.decode_replicas
        if choice.name == "pinned_ratio"
        else None,
    )


def initial_sizes(choice: PolicyChoice, tier: Tier, need: MeanNeed) -> dict[str, int]:
    """Sizes at the start: the mean need, or the fixed sizes of a policy that has some."""
    if choice.prefill_replicas is None or choice.decode_replicas is None:
        return need.initial(tier)
    fixed = {
        Phase.PREFILL: choice.prefill_replicas,
        Phase.DECODE: choice.decode_replicas,
        Phase.BOTH: choice.prefill_replicas + choice.decode_replicas,
    }
    return {pool.name: fixed[pool.phase] for pool in tier.spec.pools}


def end_of(requests: Sequence[Request]) -> float:
    """When a run over these requests ends: whole ticks after the last answers could finish."""
    ticks = -(-(requests[-1].arrival_s + DRAIN_S) // TICK_S)
    return ticks * TICK_S


def backtest(
    tier: Tier,
    requests: Sequence[Request],
    choice: PolicyChoice,
    need: MeanNeed,
    *,
    seed: int,
    router: RouterSource | None = "epp",
    recorder: Recorder | None = None,
    faults: Sequence[tuple[float, Fault]] = (),
    on_plan: Callable[[Plan, tuple[Observation, ...]], None] | None = None,
) -> Score:
    """Play the whole trace under one policy and give its row."""
    settings = tier_settings(tier, tick_s=TICK_S)
    simulated = SimulatedTier(
        simulation_plan(tier, initial_sizes(choice, tier, need)), requests, seed=seed
    )
    direct = DirectTier(
        simulated,
        settings,
        until_s=end_of(requests),
        scrape_interval_s=SCRAPE_INTERVAL_S,
        router=router,
        faults=faults,
    )
    policy = make_policy(choice, settings, need)
    changes: list[tuple[float, str, int]] = []

    def note(plan: Plan, observations: tuple[Observation, ...]) -> None:
        present = {p.pool.name: p.desired_replicas for p in observations[-1].pools}
        changes.extend(changes_of(plan, present))
        if on_plan is not None:
            on_plan(plan, observations)

    loop = Loop(
        policy=policy,
        clock=direct,
        source=direct,
        actuator=direct,
        scrapes_per_tick=round(TICK_S / SCRAPE_INTERVAL_S),
        recorder=recorder,
        on_tick=note,
    )
    asyncio.run(loop.run(policy.start()))
    return score(
        outcome_of(simulated, slo=settings.slo),
        simulated.plan.pools,
        policy=choice.name,
        changes=changes,
        headroom_ratio=choice.headroom_ratio,
    )
