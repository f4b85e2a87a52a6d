"""What one finished tick says about phasewise and its tier, as samples of the catalogue's names.

What is not known has no sample: neither zero nor NaN. Pure: no clock, no network, no log.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscaler.state import LearnedState
from autoscaler.types import Bottleneck, Decision, Lead, Plan, Reason
from serving.types import Observation, Phase, PoolId, PoolState, Slo

LEAD_QUANTILES = (0.5, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value of one of our own series."""

    name: str
    labels: Mapping[str, str]
    value: float


def action_of(decision: Decision, present_replicas: int | None) -> str:
    """What a decision does to a pool: `up`, `down`, `hold`, or `unknown` if nobody can say."""
    if decision.replicas is None or present_replicas is None:
        return "unknown"
    if decision.replicas == present_replicas:
        return "hold"
    return "up" if decision.replicas > present_replicas else "down"


def is_held(decision: Decision) -> bool:
    """Is the pool kept at its size for another reason than that it fits?"""
    return decision.hold and decision.reason is not Reason.WITHIN_NEED


def samples_of(
    plan: Plan,
    observations: Sequence[Observation],
    state: Any,
    *,
    slo: Slo | None = None,
    held_since_s: Mapping[PoolId, float] | None = None,
) -> tuple[Sample, ...]:
    """Every gauge of a tick. `state` is what the policy has learned: only ours has leads in it."""
    newest = observations[-1]
    found = [
        *_of_tier(plan, newest, slo),
        *_of_pools(plan, newest, held_since_s or {}),
        *_of_sources(plan, newest),
        *(_leads(plan, state) if isinstance(state, LearnedState) else ()),
    ]
    return tuple(
        Sample(name=f"phasewise_{name}", labels=labels, value=float(value))
        for name, labels, value in found
        if value is not None and math.isfinite(value)
    )


Found = tuple[str, dict[str, str], float | None]


def _labels(pool: PoolId, **more: str) -> dict[str, str]:
    return {"tier": pool.tier, "pool": pool.name, "phase": pool.phase.value, **more}


def _of_tier(plan: Plan, newest: Observation, slo: Slo | None) -> Iterator[Found]:
    tier = {"tier": plan.tier}
    yield "last_tick_timestamp_seconds", tier, plan.at_s
    yield "demand_ratio", tier, plan.demand_ratio
    yield "replica_ratio", tier, replica_ratio(newest.pools)
    work = (
        (Phase.PREFILL, plan.demand.prefill_tokens_per_s),
        (Phase.DECODE, plan.demand.output_tokens_per_s),
    )
    for phase, rate in work:
        yield "demand_tokens_per_second", {**tier, "phase": phase.value}, rate
    if slo is not None:
        yield "slo_seconds", {**tier, "kind": "ttft"}, slo.ttft_s
        yield "slo_seconds", {**tier, "kind": "itl"}, slo.itl_s
        yield "slo_attainment_ratio", tier, slo.attainment_ratio


def replica_ratio(pools: Sequence[PoolState]) -> float | None:
    """Ready prefill replicas over ready decode ones; `None` if unknown or none decodes."""
    counts: dict[Phase, int] = {}
    for state in pools:
        if state.ready_replicas is None:
            return None
        phase = state.pool.phase
        counts[phase] = counts.get(phase, 0) + state.ready_replicas
    if Phase.PREFILL not in counts or not counts.get(Phase.DECODE):
        return None
    return counts[Phase.PREFILL] / counts[Phase.DECODE]


def _of_pools(
    plan: Plan, newest: Observation, held_since_s: Mapping[PoolId, float]
) -> Iterator[Found]:
    for state in newest.pools:
        yield "desired_replicas", _labels(state.pool), state.desired_replicas
        counts = {
            "starting": state.starting_replicas,
            "ready": state.ready_replicas,
            "draining": state.draining_replicas,
        }
        for name, count in counts.items():
            yield "replicas", _labels(state.pool, state=name), count
    for sample in newest.samples:
        yield "kv_used_tokens", _labels(sample.pool), sample.kv_used_tokens.value
        yield "kv_capacity_tokens", _labels(sample.pool), sample.kv_capacity_tokens.value
    for decision in plan.decisions:
        pool = decision.pool
        yield "target_replicas", _labels(pool), decision.replicas
        yield "wanted_replicas", _labels(pool), decision.wanted_replicas
        yield "decision_info", _labels(pool, reason=decision.reason.value), 1.0
        since_s = held_since_s.get(pool)
        if since_s is not None:
            yield "hold_seconds", _labels(pool), plan.at_s - since_s
        yield from _needs(decision)
        yield from _kinds(pool, decision.lead)
        forecast = decision.forecast
        if forecast is not None:
            name = "forecast_tokens_per_second"
            yield name, _labels(pool, bound="expected"), forecast.expected_per_s
            yield name, _labels(pool, bound="upper"), forecast.upper_per_s


def _needs(decision: Decision) -> Iterator[Found]:
    """Of several needs of one resource (a pool of both phases) the largest counts."""
    largest: dict[Bottleneck, float] = {}
    for need in decision.needs:
        known = largest.get(need.bottleneck, 0.0)
        largest[need.bottleneck] = max(known, need.replicas_exact)
    for resource, replicas in largest.items():
        yield "need_replicas", _labels(decision.pool, resource=resource.value), replicas
    compute = [n for n in decision.needs if n.bottleneck is Bottleneck.COMPUTE]
    if len(compute) == 1 and decision.pool.phase is not Phase.BOTH:
        capacity = compute[0].replica_capacity_per_s
        yield "capacity_tokens_per_second", _labels(decision.pool), capacity


def _of_sources(plan: Plan, newest: Observation) -> Iterator[Found]:
    def source(name: str) -> dict[str, str]:
        return {"tier": plan.tier, "source": name}

    for decision in plan.decisions:
        yield "source_age_seconds", source(decision.pool.name), decision.inputs_age_s
    for sample in newest.samples:
        if sample.replicas_expected > 0:
            share = sample.replicas_reporting / sample.replicas_expected
            yield "source_coverage_ratio", source(sample.pool.name), min(1.0, share)
        yield "problems", source(sample.pool.name), len(sample.problems)
    if newest.router is not None:
        yield "source_age_seconds", source("router"), newest.router.requests_per_s.age_s
        yield "problems", source("router"), len(newest.router.problems)
    yield "problems", source("discovery"), len(newest.problems)
    yield "problems", source("plan"), len(plan.problems)


def _leads(plan: Plan, state: LearnedState) -> Iterator[Found]:
    """Pools are in the same order in the plan and in what is learned."""
    if len(state.pools) != len(plan.decisions):
        return
    for decision, learned in zip(plan.decisions, state.pools, strict=True):
        for quantile in LEAD_QUANTILES:
            labels = _labels(decision.pool, share=f"{quantile:g}")
            yield "lead_seconds", labels, learned.lead.quantile_s(quantile)


def _kinds(pool: PoolId, lead: Lead | None) -> Iterator[Found]:
    for each in () if lead is None else lead.kinds:
        kind = each.kind or "unknown"
        yield "lead_by_kind_seconds", _labels(pool, kind=kind, share="0.5"), each.p50_s
        yield "lead_by_kind_seconds", _labels(pool, kind=kind, share="0.95"), each.p95_s
        for stage, seconds in each.stages_s:
            yield "start_stage_seconds", _labels(pool, kind=kind, stage=stage.value), seconds
