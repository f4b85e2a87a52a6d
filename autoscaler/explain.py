"""Why one pool got the size it got, from what was written down of the tick and nothing else.

Pure: no clock, no network, no log. Every number in an explanation stands in the recorded tick or in
the settings that it was planned with; what is said of it is in `autoscaler.verdict`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from autoscaler.recorded import RecordedTick
from autoscaler.types import Counterfactual, Decision, Forecast, Lead, Need, Step, TierSettings
from autoscaler.verdict import Told, verdict, what_would_change
from serving.types import Measurement, Phase, PhaseSample, PoolState, RouterSample

_UNITS = {  # of a field's name, by its end; the first that fits
    "tokens_per_s": "tokens/s",
    "requests_per_s": "requests/s",
    "steps_per_s": "steps/s",
    "bytes_per_s": "bytes/s",
    "failures_per_s": "failures/s",
    "preemptions_per_s": "preemptions/s",
    "_ratio": "ratio",
    "_requests": "requests",
    "_replicas": "replicas",
    "_tokens": "tokens",
    "tokens_mean": "tokens",
    "_s": "s",
}
_PREFILL_INPUTS = (
    "computed_prompt_tokens_per_s",
    "request_prompt_tokens_mean",
    "prefill_time_mean_s",
    "queue_time_mean_s",
    "waiting_requests",
)
_DECODE_INPUTS = (
    "output_tokens_per_s",
    "request_output_tokens_mean",
    "itl_mean_s",
    "running_requests",
    "waiting_requests",
    "kv_used_tokens",
    "kv_capacity_tokens",
    "hottest_kv_used_ratio",
    "kv_transfer_bytes_per_s",
    "kv_transfer_time_mean_s",
    "tpot_within_slo_ratio",
)
_ROUTER_INPUTS = (
    "requests_per_s",
    "input_tokens_mean",
    "output_tokens_mean",
    "ttft_within_slo_ratio",
    "tpot_within_slo_ratio",
)
_DEMAND_INPUTS = {
    Phase.PREFILL: ("prefill_tokens_per_s", "input_tokens_mean"),
    Phase.DECODE: ("output_tokens_per_s", "output_tokens_mean"),
    Phase.BOTH: ("prefill_tokens_per_s", "output_tokens_per_s"),
}
_STATE_INPUTS = ("desired_replicas", "ready_replicas", "starting_replicas", "draining_replicas")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One number that went in; `value` is `None` where it was not known."""

    name: str
    value: float | None
    unit: str
    age_s: float | None
    coverage_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedNeed:
    """One resource's need; the one that binds decides."""

    bottleneck: str
    words: str
    replicas_exact: float
    replicas: int
    demand_per_s: float
    replica_capacity_per_s: float
    feasible: bool
    binds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedStep:
    """One rule's effect."""

    name: str
    before: int
    after: int
    reason: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One decision, unfolded. `before` is what the pool was asked to have, `after` what is decided;
    `None` where that was not known. Field names are those of the JSON.
    """

    tier: str
    pool: str
    phase: str
    at_s: float
    epoch: int
    before: int | None
    after: int | None
    reason: str
    verdict: str
    what_would_change: str
    inputs: tuple[Input, ...]
    forecast: Forecast | None
    needs: tuple[ExplainedNeed, ...]
    steps: tuple[ExplainedStep, ...]
    counterfactuals: tuple[Counterfactual, ...]
    lead: Lead | None = None


def unit_of(name: str) -> str:
    """The unit that a field's name carries, in words."""
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")


def binding_need(needs: tuple[Need, ...]) -> Need | None:
    """The need that decides: the largest that sizes a pool, as the plan chooses it."""
    sizing = (n for n in needs if n.sizes_pool)
    return max(sizing, key=lambda n: (n.replicas, n.replicas_exact), default=None)


def explain(tick: RecordedTick, settings: TierSettings, pool: str) -> Explanation | None:
    """The explanation of one pool's decision in a tick; `None` if the tier has no such pool."""
    decision = tick.decision(pool)
    if decision is None:
        return None
    state = tick.state(pool)
    before = None if state is None else state.desired_replicas
    binds = binding_need(decision.needs)
    told = Told(
        decision=decision,
        before=before,
        need=binds,
        settings=settings,
        at_s=tick.at_s,
        measured="" if binds is None else _measured_now(tick, decision, settings),
    )
    return Explanation(
        tier=tick.plan.tier,
        pool=pool,
        phase=str(decision.pool.phase),
        at_s=tick.at_s,
        epoch=tick.epoch,
        before=before,
        after=decision.replicas,
        reason=str(decision.reason),
        verdict=verdict(told),
        what_would_change=what_would_change(told),
        inputs=tuple(_inputs(tick, decision, state)),
        forecast=decision.forecast,
        needs=tuple(_need(need, binds=need is binds) for need in decision.needs),
        steps=tuple(_step(step) for step in decision.steps),
        counterfactuals=decision.counterfactuals,
        lead=decision.lead,
    )


def _measured_now(tick: RecordedTick, decision: Decision, settings: TierSettings) -> str:
    """What the pool's part of the latency is now, as measured; what is not known is left out."""
    sample, router, slo = tick.sample(decision.pool.name), tick.newest.router, settings.slo
    found: list[str] = []
    if decision.pool.phase is not Phase.DECODE:
        if sample is not None and (wait_s := sample.queue_time_mean_s.value) is not None:
            found.append(f"prompts wait {wait_s:.2f} s")
        if router is not None and (share := router.ttft_within_slo_ratio.value) is not None:
            found.append(f"{share:.1%} of first tokens within {slo.ttft_s:g} s")
    if decision.pool.phase is not Phase.PREFILL:
        if sample is not None and (gap_s := sample.itl_mean_s.value) is not None:
            found.append(f"{gap_s * 1000:.1f} ms mean gap between tokens")
        shares = [seen.tpot_within_slo_ratio.value for seen in (sample, router) if seen is not None]
        if (share := next((each for each in shares if each is not None), None)) is not None:
            found.append(f"{share:.1%} within {slo.itl_s * 1000:g} ms")
    return ", ".join(found)


def _need(need: Need, *, binds: bool) -> ExplainedNeed:
    return ExplainedNeed(
        bottleneck=str(need.bottleneck),
        words=need.words,
        replicas_exact=need.replicas_exact,
        replicas=need.replicas,
        demand_per_s=need.demand_per_s,
        replica_capacity_per_s=need.replica_capacity_per_s,
        feasible=need.feasible,
        binds=binds,
    )


def _step(step: Step) -> ExplainedStep:
    return ExplainedStep(
        name=step.name,
        before=step.before_replicas,
        after=step.after_replicas,
        reason=str(step.reason),
        words=step.words,
    )


def _inputs(tick: RecordedTick, decision: Decision, state: PoolState | None) -> list[Input]:
    phase, pool = decision.pool.phase, decision.pool.name
    found = [
        _plain(f"demand.{name}", getattr(tick.plan.demand, name)) for name in _DEMAND_INPUTS[phase]
    ]
    wanted = (
        *(_PREFILL_INPUTS if phase is not Phase.DECODE else ()),
        *(_DECODE_INPUTS if phase is not Phase.PREFILL else ()),
    )
    found += _measured(pool, tick.sample(pool), dict.fromkeys(wanted))
    found += _measured("router", tick.newest.router, dict.fromkeys(_ROUTER_INPUTS))
    if state is not None:
        age_s = tick.at_s - state.observed_at_s
        found += [_plain(f"{pool}.{name}", getattr(state, name), age_s) for name in _STATE_INPUTS]
    return found


def _plain(name: str, value: float | None, age_s: float | None = None) -> Input:
    return Input(name=name, value=value, unit=unit_of(name), age_s=age_s, coverage_ratio=None)


def _measured(
    prefix: str, sample: PhaseSample | RouterSample | None, names: dict[str, None]
) -> list[Input]:
    if sample is None:
        return []
    known = {field.name for field in fields(sample)}
    measured: list[tuple[str, Measurement]] = [
        (name, getattr(sample, name)) for name in names if name in known
    ]
    return [
        Input(
            name=f"{prefix}.{name}",
            value=seen.value,
            unit=unit_of(name),
            age_s=seen.age_s,
            coverage_ratio=seen.coverage_ratio,
        )
        for name, seen in measured
    ]
