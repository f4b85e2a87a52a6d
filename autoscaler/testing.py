"""A small tier under a load that tests choose, tick by tick: observations, plans, recorded ticks.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.recorded import RecordedTick
from autoscaler.state import LearnedState, new_state
from autoscaler.tick import tick
from autoscaler.types import Decision, PoolSettings, TierSettings
from serving.testing import DECODE, PREFILL, make_observation, make_pool_state, make_sample
from serving.types import (
    Measurement,
    Observation,
    Override,
    PhaseSample,
    PoolId,
    PoolState,
    RouterSample,
    Slo,
)

SLO = Slo(ttft_s=2.5, itl_s=0.05, attainment_ratio=0.99)
TIER = TierSettings(
    name="demo",
    slo=SLO,
    pools=tuple(PoolSettings(pool=p, min_replicas=2, max_replicas=50) for p in (PREFILL, DECODE)),
)
SCRAPE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a tier lives through in one tick: `scale` times 50,000 input and 10,000 output tokens/s.

    `blind` pools give no numbers, `lost` ones not even their size. `sizes` are those that the pools
    are asked to have; absent, the plan before is obeyed at once.
    """

    scale: float = 1.0
    blind: tuple[PoolId, ...] = ()
    lost: tuple[PoolId, ...] = ()
    sizes: Mapping[str, int] | None = None
    overrides: tuple[Override, ...] = ()
    router: bool = True


def observed(at_s: float, load: Load, sizes: Mapping[str, int]) -> Observation:
    """One look at the tier under a load."""
    prompts = 45.0 * load.scale
    prefill, decode = sizes[PREFILL.name], sizes[DECODE.name]
    samples = [
        make_sample(
            PREFILL,
            at_s=at_s,
            replicas=prefill,
            computed_prompt_tokens_per_s=50_000.0 * load.scale,
            finished_requests_per_s=prompts,
            steps_per_s=prompts / 1.2,
            step_tokens_per_s=50_000.0 * load.scale,
            prefill_time_mean_s=0.14,
            request_prompt_tokens_mean=1111.0,
            waiting_requests=0.0,
            preemptions_per_s=0.0,
            kv_transfer_failures_per_s=0.0,
            queue_time_mean_s=0.02,
        ),
        make_sample(
            DECODE,
            at_s=at_s,
            replicas=decode,
            output_tokens_per_s=10_000.0 * load.scale,
            finished_requests_per_s=prompts,
            itl_mean_s=0.04,
            running_requests=400.0 * load.scale,
            kv_used_tokens=480_000.0 * load.scale,
            kv_capacity_tokens=decode * 190_000.0,
            waiting_requests=0.0,
            deferred_requests=0.0,
            request_output_tokens_mean=222.0,
            preemptions_per_s=0.0,
            kv_transfer_failures_per_s=0.0,
        ),
    ]
    seen = make_observation(
        *(_blind(sample, at_s) if sample.pool in load.blind else sample for sample in samples),
        at_s=at_s,
        pools=tuple(
            make_pool_state(p, at_s=at_s, desired=None if p in load.lost else sizes[p.name])
            for p in (PREFILL, DECODE)
        ),
    )
    return replace(
        seen,
        router=_router(at_s, prompts) if load.router else None,
        overrides=load.overrides,
    )


def _blind(sample: PhaseSample, at_s: float) -> PhaseSample:
    empty = make_sample(sample.pool, at_s=at_s, replicas=sample.replicas_expected)
    return replace(empty, replicas_reporting=0, problems=("no page answers",))


def _router(at_s: float, requests_per_s: float) -> RouterSample:
    def known(value: float) -> Measurement:
        return Measurement(value, 0.0, 1.0)

    return RouterSample(
        source="epp",
        window_start_s=at_s - SCRAPE_S,
        window_s=SCRAPE_S,
        requests_per_s=known(requests_per_s),
        finished_requests_per_s=known(requests_per_s),
        input_tokens_mean=known(1111.0),
        output_tokens_mean=known(222.0),
        ttft_within_slo_ratio=known(0.995),
        tpot_within_slo_ratio=known(0.97),
    )


def decision_in(tick: RecordedTick, pool: str) -> Decision:
    """The decision of a pool that the tick must have."""
    found = tick.decision(pool)
    assert found is not None
    return found


def state_in(tick: RecordedTick, pool: str) -> PoolState:
    """The counts of a pool that the tick must have."""
    found = tick.state(pool)
    assert found is not None
    return found


def recorded_run(
    loads: Sequence[Load],
    *,
    settings: TierSettings = TIER,
    sizes: Mapping[str, int] | None = None,
    on_tick: Callable[[RecordedTick, LearnedState], None] | None = None,
) -> tuple[RecordedTick, ...]:
    """The ticks of a tier that starts with nothing learned and does what is planned at once."""
    state = new_state(settings)
    now = dict(sizes or {PREFILL.name: 8, DECODE.name: 8})
    found: list[RecordedTick] = []
    for index, load in enumerate(loads):
        now |= load.sizes or {}
        start_s = settings.tick_s * index
        scrapes = round(settings.tick_s / SCRAPE_S)
        seen = tuple(observed(start_s + SCRAPE_S * (k + 1), load, now) for k in range(scrapes))
        state, plan = tick(state, seen, settings)
        made = RecordedTick(epoch=plan.epoch, at_s=plan.at_s, observations=seen, plan=plan)
        found.append(made)
        now |= {d.pool.name: d.replicas for d in plan.decisions if d.replicas is not None}
        if on_tick is not None:
            on_tick(made, state)
    return tuple(found)
