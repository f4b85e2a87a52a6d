"""From what is known to how many replicas of each pool, and why.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autoscaler.budget import within_budget
from autoscaler.counterfactual import counterfactuals
from autoscaler.forecast import RateHistory, forecast
from autoscaler.lead import lead_told
from autoscaler.link import failed_transfers_words, slow_link, slow_link_words
from autoscaler.needs import NEEDS, NeedInput, aggregated_need
from autoscaler.state import LearnedState, PoolLearned
from autoscaler.steps import STEPS, StepInput, is_proven
from autoscaler.types import (
    Bottleneck,
    Decision,
    Demand,
    Forecast,
    Need,
    Plan,
    PoolSettings,
    Proposal,
    Reason,
    TierSettings,
)
from serving.types import Override, Phase, PoolId, PoolState

_PHASES_OF_PREFILL_WORK = (Phase.PREFILL, Phase.BOTH)
_PHASES_OF_DECODE_WORK = (Phase.DECODE, Phase.BOTH)


def share_of_work(
    state: LearnedState, tier: TierSettings, pool: PoolId, phases: tuple[Phase, ...]
) -> float:
    """The share of one kind of work that a pool carries, by the replicas asked of its peers.

    One pool for each phase is the usual case, and then it is 1.
    """
    weights: dict[PoolId, float] = {}
    for known, settings in zip(state.pools, tier.pools, strict=True):
        if settings.phase in phases:
            desired = known.state.desired_replicas if known.state is not None else None
            weights[settings.pool] = float(desired if desired is not None else 1)
    total = sum(weights.values())
    if pool not in weights:
        return 0.0
    return weights[pool] / total if total > 0.0 else 1.0 / len(weights)


def _forecast(
    history: RateHistory, known: PoolLearned, tier: TierSettings, now_s: float
) -> Forecast | None:
    return forecast(
        history,
        now_s=now_s,
        lead_s=known.lead.p95_s + tier.tick_s,
        upper_ratio=tier.upper_ratio,
        stale_s=tier.fresh_s,
    )


def _need_input(
    state: LearnedState,
    tier: TierSettings,
    known: PoolLearned,
    settings: PoolSettings,
    *,
    prefill: Forecast | None,
    output: Forecast | None,
) -> NeedInput:
    share_in = share_of_work(state, tier, settings.pool, _PHASES_OF_PREFILL_WORK)
    share_out = share_of_work(state, tier, settings.pool, _PHASES_OF_DECODE_WORK)
    newest = state.bins[-1] if state.bins else None
    ready = known.state.ready_replicas if known.state is not None else None
    return NeedInput(
        tier=tier,
        pool=settings,
        demand=state.demand,
        prefill_tokens_per_s=None if prefill is None else prefill.upper_per_s * share_in,
        output_tokens_per_s=None if output is None else output.upper_per_s * share_out,
        prefill=known.prefill,
        decode=known.decode,
        waiting_prefill_requests=None if newest is None else newest.waiting_prefill_requests,
        serving_replicas=ready,
        lead_s=known.lead.p50_s,
    )


def _all_needs(seen: NeedInput) -> tuple[Need, ...]:
    needs = tuple(need for rule in NEEDS if (need := rule(seen)) is not None)
    if seen.pool.phase is Phase.BOTH:
        summed = aggregated_need(needs)
        return needs if summed is None else (*needs, summed)
    return needs


def _largest(needs: tuple[Need, ...]) -> Need | None:
    sizing = (n for n in needs if n.sizes_pool)
    return max(sizing, key=lambda n: (n.replicas, n.replicas_exact), default=None)


def with_more_demand(seen: NeedInput, margin_ratio: float) -> NeedInput:
    """The same question for a demand that is larger by a ratio."""
    factor = 1.0 + margin_ratio
    prefill, output = seen.prefill_tokens_per_s, seen.output_tokens_per_s
    return replace(
        seen,
        prefill_tokens_per_s=None if prefill is None else prefill * factor,
        output_tokens_per_s=None if output is None else output * factor,
    )


def _decide(
    state: LearnedState,
    tier: TierSettings,
    known: PoolLearned,
    settings: PoolSettings,
    pool_state: PoolState | None,
    override: Override | None,
    now_s: float,
) -> tuple[Decision, NeedInput | None]:
    if pool_state is None or pool_state.desired_replicas is None:
        unknown = Decision(
            pool=settings.pool,
            replicas=None,
            hold=True,
            reason=Reason.POOL_STATE_UNKNOWN,
            words="how many replicas it has is not known, so it is left alone",
            override=override,
        )
        return unknown, None
    prefill = _forecast(state.prefill_rate, known, tier, now_s)
    output = _forecast(state.output_rate, known, tier, now_s)
    seen = _need_input(state, tier, known, settings, prefill=prefill, output=output)
    needs = _all_needs(seen)
    need = _largest(needs)
    kept = _largest(_all_needs(with_more_demand(seen, tier.down_margin_ratio)))
    present = pool_state.desired_replicas
    step_input = StepInput(
        tier=tier,
        settings=settings,
        learned=known,
        state=pool_state,
        need=need,
        kept_replicas=None if kept is None else kept.replicas,
        forecast=prefill if settings.phase is Phase.PREFILL else output,
        censored=state.demand.censored and settings.phase is not Phase.DECODE,
        now_s=now_s,
        override=override,
    )
    proposal = Proposal(replicas=present, reason=Reason.WITHIN_NEED)
    for rule in STEPS:
        proposal = rule(proposal, step_input)
    blind_s = None if known.last_known_s is None else now_s - known.last_known_s
    is_blind = blind_s is None or blind_s > tier.fresh_s
    decision = Decision(
        pool=settings.pool,
        replicas=proposal.replicas,
        hold=proposal.replicas == present,
        reason=proposal.reason,
        words=proposal.steps[-1].words,
        needs=needs,
        forecast=step_input.forecast,
        steps=proposal.steps,
        wanted_replicas=None if need is None else need.replicas,
        kept_replicas=None if is_blind else step_input.kept_replicas,
        inputs_age_s=blind_s,
        coverage_ratio=None
        if known.sample is None or known.sample.replicas_expected == 0
        else known.sample.replicas_reporting / known.sample.replicas_expected,
        override=override,
        lead=lead_told(known.lead),
        problems=_network_problems(known, tier, pool_state, needs, now_s),
    )
    return decision, seen


def _network_problems(
    known: PoolLearned,
    tier: TierSettings,
    pool_state: PoolState,
    needs: tuple[Need, ...],
    now_s: float,
) -> tuple[str, ...]:
    """What is wrong with the KV network of a pool, which no size of the pool mends."""
    found: list[str] = []
    declared = tier.kv_bytes_per_s_per_replica
    slow = slow_link(known.link, now_s=now_s, declared_bytes_per_s=declared)
    if slow is not None:
        found.append(slow_link_words(slow, pool_state.pool.name))
    failed = failed_transfers_words(known.link, pool_state.pool.name, now_s=now_s)
    found += [] if failed is None else [failed]
    network = next((n for n in needs if n.bottleneck is Bottleneck.NETWORK), None)
    ready = pool_state.ready_replicas
    if network is not None and ready and network.replicas_exact > ready:
        found.append(
            f"the network binds at {pool_state.pool.name}: {network.words}, and {ready} are "
            "ready; more decode replicas are no answer where they share a link"
        )
    return tuple(found)


def _with_counterfactuals(decision: Decision, seen: NeedInput | None) -> Decision:
    if seen is None or decision.replicas is None:
        return decision
    return replace(
        decision,
        counterfactuals=counterfactuals(
            seen, decision.needs, decision.replicas, forecast_proven=is_proven(decision.forecast)
        ),
    )


def in_force(overrides: Sequence[Override], now_s: float) -> dict[str, Override]:
    """What people asked for that has not ended yet, by the pool's name; the last word counts."""
    return {each.pool: each for each in overrides if now_s < each.until_s}


def demand_ratio(decisions: tuple[Decision, ...]) -> float | None:
    """Needed prefill replicas over needed decode replicas, before rounding; `None` if not known."""

    def exact(phase: Phase) -> float | None:
        found = [
            max(n.replicas_exact for n in d.needs if n.sizes_pool)
            for d in decisions
            if d.pool.phase is phase and any(n.sizes_pool for n in d.needs)
        ]
        return sum(found) if found else None

    prefill, decode = exact(Phase.PREFILL), exact(Phase.DECODE)
    if prefill is None or not decode or not math.isfinite(prefill / decode):
        return None
    return prefill / decode


def plan(
    state: LearnedState,
    pools: Mapping[PoolId, PoolState],
    tier: TierSettings,
    *,
    now_s: float,
    overrides: Sequence[Override] = (),
) -> Plan:
    """The decisions for all pools of a tier, from what is known and asked for at `now_s`."""
    asked = in_force(overrides, now_s)
    found = [
        _decide(
            state,
            tier,
            known,
            settings,
            pools.get(settings.pool),
            asked.get(settings.pool.name),
            now_s,
        )
        for known, settings in zip(state.pools, tier.pools, strict=True)
    ]
    limited = within_budget(tuple(decision for decision, _ in found), tier)
    decisions = tuple(
        _with_counterfactuals(decision, seen)
        for decision, (_, seen) in zip(limited, found, strict=True)
    )
    return Plan(
        tier=tier.name,
        epoch=state.epoch + 1,
        at_s=now_s,
        policy="phasewise",
        decisions=decisions,
        demand=state.demand if state.now_s is not None else Demand(),
        demand_ratio=demand_ratio(decisions),
        problems=tuple(dict.fromkeys(text for d in decisions for text in d.problems)),
    )
