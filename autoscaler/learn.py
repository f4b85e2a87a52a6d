"""What a tier teaches: one observation folded into the learned state.

Pure: no clock, no network, no log.

`learn` is called for every scrape interval, in order; the same observations always give the same
state, which is what makes a ledger replayable.
"""

from __future__ import annotations

from dataclasses import replace

from autoscaler.believable import believable
from autoscaler.demand import bin_of, demand_level
from autoscaler.forecast import RateHistory, learn_errors, learn_level
from autoscaler.lead import learn_lead, not_seen
from autoscaler.learn_capacity import learn_decode, learn_prefill
from autoscaler.link import earlier_link, learn_link
from autoscaler.state import LearnedState, PoolLearned, Want
from autoscaler.types import Demand, Plan, PoolSettings, TierSettings
from serving.types import Observation, Phase, PhaseSample, PoolState

_BINS_KEPT_S = 900.0
_WANTS_KEPT_S = 1800.0


def knows_its_work(sample: PhaseSample) -> bool:
    """Whether the sample tells how much work of its phase the pool did."""
    if sample.pool.phase is Phase.PREFILL:
        return sample.computed_prompt_tokens_per_s.value is not None
    if sample.pool.phase is Phase.DECODE:
        return sample.output_tokens_per_s.value is not None
    return (
        sample.computed_prompt_tokens_per_s.value is not None
        and sample.output_tokens_per_s.value is not None
    )


def _learn_pool(
    known: PoolLearned,
    settings: PoolSettings,
    *,
    sample: PhaseSample | None,
    state: PoolState | None,
    at_s: float,
    kv_bytes_per_s: float | None,
) -> PoolLearned:
    if state is not None:
        known = replace(known, state=state, lead=learn_lead(known.lead, state))
    else:
        known = replace(known, state=None, lead=not_seen(known.lead))
    if sample is None:
        return replace(known, sample=None)
    prefill, decode, link = known.prefill, known.decode, known.link
    if settings.phase is not Phase.DECODE:
        prefill = learn_prefill(
            prefill,
            sample,
            prior=settings.prior,
            max_batched_tokens=settings.max_batched_tokens,
            decode=decode,
        )
    if settings.phase is not Phase.PREFILL:
        decode = learn_decode(decode, sample, prior=settings.prior)
        link = learn_link(link, sample, at_s=at_s, declared_bytes_per_s=kv_bytes_per_s)
    return replace(
        known,
        prefill=prefill,
        decode=decode,
        link=link,
        sample=sample,
        last_known_s=at_s if knows_its_work(sample) else known.last_known_s,
    )


def learn(state: LearnedState, observation: Observation, tier: TierSettings) -> LearnedState:
    """The state after one more observation; one of an earlier time than the last begins anew."""
    observation = believable(observation)
    at_s = observation.at_s
    if state.now_s is not None and at_s < state.now_s:
        state = until(state, at_s)
    samples = {sample.pool: sample for sample in observation.samples}
    states = {pool.pool: pool for pool in observation.pools}
    pools = tuple(
        _learn_pool(
            known,
            settings,
            sample=samples.get(settings.pool),
            state=states.get(settings.pool),
            at_s=at_s,
            kv_bytes_per_s=tier.kv_bytes_per_s_per_replica,
        )
        for known, settings in zip(state.pools, tier.pools, strict=True)
    )
    bins = (*(b for b in state.bins if b.at_s > at_s - _BINS_KEPT_S), bin_of(observation))
    demand = _with_lengths(
        demand_level(bins, now_s=at_s, window_s=tier.level_window_s), state.demand
    )
    prefill_rate, output_rate = state.prefill_rate, state.output_rate
    if demand.prefill_tokens_per_s is not None:
        prefill_rate = learn_level(prefill_rate, at_s=at_s, per_s=demand.prefill_tokens_per_s)
        prefill_rate = learn_errors(prefill_rate, lead_s=lead_s(pools, tier, Phase.PREFILL))
    if demand.output_tokens_per_s is not None:
        output_rate = learn_level(output_rate, at_s=at_s, per_s=demand.output_tokens_per_s)
        output_rate = learn_errors(output_rate, lead_s=lead_s(pools, tier, Phase.DECODE))
    return replace(
        state,
        pools=pools,
        bins=bins,
        prefill_rate=prefill_rate,
        output_rate=output_rate,
        demand=demand,
        router=observation.router,
        now_s=at_s,
    )


def _with_lengths(demand: Demand, before: Demand) -> Demand:
    """The demand with the last known mean lengths where the newest bins tell none.

    A length is of requests, not of a moment: without it a pool would be sized for prompts of one
    token, of which a replica does fifty times fewer tokens/s.
    """
    return replace(
        demand,
        input_tokens_mean=before.input_tokens_mean
        if demand.input_tokens_mean is None
        else demand.input_tokens_mean,
        output_tokens_mean=before.output_tokens_mean
        if demand.output_tokens_mean is None
        else demand.output_tokens_mean,
    )


def until(state: LearnedState, at_s: float) -> LearnedState:
    """The state without what is later than a time: the clock was set back to it.

    What holds at any time stays: capacity, start-up times, and how well forecasts did. A pool that
    was last known later than that counts as not seen, so that it does not shrink before it is.
    """

    def earlier(history: RateHistory) -> RateHistory:
        return replace(history, points=tuple(p for p in history.points if p.at_s <= at_s))

    pools = tuple(
        replace(
            known,
            lead=not_seen(known.lead),
            link=earlier_link(known.link, at_s),
            wants=tuple(want for want in known.wants if want.at_s <= at_s),
            last_known_s=None
            if known.last_known_s is not None and known.last_known_s > at_s
            else known.last_known_s,
        )
        for known in state.pools
    )
    return replace(
        state,
        pools=pools,
        bins=tuple(each for each in state.bins if each.at_s <= at_s),
        prefill_rate=earlier(state.prefill_rate),
        output_rate=earlier(state.output_rate),
    )


def lead_s(pools: tuple[PoolLearned, ...], tier: TierSettings, phase: Phase) -> float:
    """The longest lead of the pools that do a phase's work: p95 of a start plus one tick."""
    leads = [
        known.lead.p95_s
        for known, settings in zip(pools, tier.pools, strict=True)
        if settings.phase in (phase, Phase.BOTH)
    ]
    return max(leads, default=0.0) + tier.tick_s


def remember(state: LearnedState, plan: Plan) -> LearnedState:
    """The state after a plan was made from it: its epoch, and what each pool would have kept."""
    kept = {d.pool: d.kept_replicas for d in plan.decisions}
    pools = []
    for known in state.pools:
        pool = known.state.pool if known.state is not None else None
        replicas = kept.get(pool) if pool is not None else None
        wants = tuple(w for w in known.wants if w.at_s > plan.at_s - _WANTS_KEPT_S)
        if replicas is not None:
            wants = (*wants, Want(at_s=plan.at_s, replicas=replicas))
        pools.append(replace(known, wants=wants))
    return replace(state, pools=tuple(pools), epoch=plan.epoch)
