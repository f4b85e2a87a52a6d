"""One decision as sentences for a person at three in the morning.

Pure: no clock, no network, no log. Built only from the recorded decision and the settings that it
was made with; times are seconds, as everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autoscaler.types import (
    Bottleneck,
    Counterfactual,
    Decision,
    Forecast,
    Need,
    Reason,
    TierSettings,
)
from serving.types import OverrideKind, Phase

_RESOURCES = {
    Bottleneck.COMPUTE: "Compute",
    Bottleneck.KV_CACHE: "The KV cache",
    Bottleneck.NETWORK: "The network",
    Bottleneck.QUEUE_BACKLOG: "The queue that already waits",
}
_HELD = {  # why a pool that could be smaller is not
    Reason.COVERAGE_LOW: "it is not seen well enough, and what is not seen never shrinks",
    Reason.POOL_STATE_UNKNOWN: "how many of its replicas are ready is not known",
    Reason.CAPACITY_NOT_LEARNED: "what one replica carries is not learned yet",
    Reason.FORECAST_UNPROVEN: "the forecast is not proven yet",
    Reason.DEMAND_CENSORED: "requests wait, so the demand may be larger than what was served",
    Reason.SCALE_DOWN_STABILIZED: "less must have been enough for a whole window first",
}
_UNTIL = {  # what a held pool waits for, beside the window
    Reason.COVERAGE_LOW: "its replicas are seen again",
    Reason.POOL_STATE_UNKNOWN: "the number of ready replicas is known again",
    Reason.CAPACITY_NOT_LEARNED: "enough windows of work were seen",
    Reason.FORECAST_UNPROVEN: "the forecast was held against what came often enough",
    Reason.DEMAND_CENSORED: "no requests wait any more",
}
_BY_A_PERSON = (Reason.PAUSED, Reason.PINNED, Reason.FLOORED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the sentences are made of. `before` is what the pool was asked to have, `measured` what
    users get now; empty where nothing of it is measured.
    """

    decision: Decision
    before: int | None
    need: Need | None
    settings: TierSettings
    at_s: float
    measured: str = ""


def verdict(told: Told) -> str:
    """What was decided and why, with the numbers; also why a pool did not shrink."""
    decision, before = told.decision, told.before
    if decision.replicas is None or before is None:
        return f"{decision.pool.name} is left alone: what it is asked to have is not known."
    parts = [
        _what(told, before, decision.replicas),
        f"Measured now: {told.measured}." if told.measured else "",
        _basis(told),
        _smaller(told),
        *(f"Beside that, {text}." for text in decision.problems),
    ]
    return " ".join(part for part in parts if part)


def _what(told: Told, before: int, after: int) -> str:
    name, reason, why = told.decision.pool.name, told.decision.reason, told.decision.words
    need = told.need
    moved = _moved(name, before, after)
    if reason in _BY_A_PERSON:
        return f"{moved} because a person asked for it: {why}."
    if reason is Reason.BUDGET_LIMITED:
        return f"{moved}: {why}."
    if reason in (Reason.AT_MINIMUM, Reason.AT_MAXIMUM):
        limit = "smallest" if reason is Reason.AT_MINIMUM else "largest"
        return f"{moved}, the {limit} size that its limits allow{f': {why}' if why else ''}."
    if reason is Reason.DEMAND_UNKNOWN:
        return f"{moved}: its demand is not known ({why}), and unknown is not zero."
    if reason is Reason.SLO_INFEASIBLE:
        return f"{moved}: {why}."
    if reason is Reason.LATENCY_ABOVE_SLO:
        return f"{moved} whatever the forecast says: {why}."
    if reason in _HELD and need is not None and need.replicas < after:
        because = f" ({why})" if why else ""
        return (
            f"{name} does not shrink from {after} to the {need.replicas} that would do now: "
            f"{_HELD[reason]}{because}."
        )
    if after == before:
        return f"{moved}: that is what is needed."
    lately = f": {why}" if need is not None and need.replicas < after else ""
    return f"{moved}{lately}."


def _moved(name: str, before: int, after: int) -> str:
    if after == before:
        return f"{name} stays at {after} {_replicas(after)}"
    direction = "grows" if after > before else "shrinks"
    return f"{name} {direction} from {before} to {after} {_replicas(after)}"


def _replicas(number: int) -> str:
    return "replica" if number == 1 else "replicas"


def _basis(told: Told) -> str:
    """The binding resource, the forecast behind it, and how the two make a number."""
    need, said = told.need, told.decision.forecast
    if need is None:
        return ""
    sentence = (
        f"{_RESOURCES[need.bottleneck]} binds: {need.demand_per_s:,.0f} {_kind(told)} tokens/s "
        f"over the {need.replica_capacity_per_s:,.0f} that one replica carries is "
        f"{need.replicas_exact:.2f}, {_rounded(need, told.settings)}."
    )
    return sentence if said is None else f"{sentence} {_forecast(said, told)}"


def _rounded(need: Need, settings: TierSettings) -> str:
    """What became of the exact number: rounded up, or more where chance needs room."""
    replicas = f"{need.replicas} {_replicas(need.replicas)}"
    if need.bottleneck is Bottleneck.COMPUTE and need.replicas > math.ceil(need.replicas_exact):
        on_time = settings.slo.attainment_ratio
        return f"and {replicas} keep {on_time:.0%} of prompts on time when they come in bursts"
    return f"so {replicas}"


def _kind(told: Told) -> str:
    """Input or output; an aggregated pool's sum counts the tokens of the larger share."""
    assert told.need is not None
    work = told.need.work or told.decision.pool.phase
    return {Phase.PREFILL: "input", Phase.DECODE: "output", Phase.BOTH: "input or output"}[work]


def _forecast(said: Forecast, told: Told) -> str:
    settings, lead = told.settings, told.decision.lead
    kind = "" if lead is None or lead.counted is None else f"{lead.counted} "
    return (
        f"The forecast is for {said.lead_s:.0f} s ahead, a {kind}start-up and one tick, by the "
        f"forecaster {said.forecaster}: {said.level_per_s:,.0f} tokens/s now (smoothed over "
        f"{settings.level_window_s:.0f} s), {said.expected_per_s:,.0f} expected, "
        f"{said.upper_per_s:,.0f} at the {said.upper_ratio:.0%} quantile, "
        "which the pool is sized for."
    )


def counterfactual_of(decision: Decision, replicas: int) -> Counterfactual | None:
    """What was written down of another size, if it was."""
    return next((c for c in decision.counterfactuals if c.replicas == replicas), None)


def _smaller(told: Told) -> str:
    assert told.decision.replicas is not None
    found = counterfactual_of(told.decision, told.decision.replicas - 1)
    return "" if found is None else f"With {found.replicas} the model expects: {found.words}."


def what_would_change(told: Told) -> str:
    """What must happen for another number to come out."""
    decision, need, asked = told.decision, told.need, told.decision.override
    if decision.replicas is None:
        return "It is steered again once its scale target says how many replicas it has."
    if asked is not None and asked.kind is not OverrideKind.FLOOR:
        left_s = asked.until_s - told.at_s
        return f"The word of {asked.by} ends in {left_s:.0f} s, or when it is taken back."
    if need is None:
        return (
            f"It is sized again once its work was seen within the last {told.settings.fresh_s:.0f} "
            "s; until then it does not move."
        )
    if not need.feasible:
        return "Only another target, engine or accelerator: more replicas do not help."
    return f"{_up(told, decision.replicas, need)} {_down(told, decision.replicas)}"


def _up(told: Told, replicas: int, need: Need) -> str:
    high = told.settings.pool(told.decision.pool).max_replicas
    if replicas >= high:
        return f"It does not grow over its maximum of {high}."
    return (
        f"It grows as soon as more than {replicas} are needed: {need.replicas_exact:.2f} are now, "
        f"before rounding, and every {need.replica_capacity_per_s:,.0f} {_kind(told)} tokens/s "
        "more is another one."
    )


def _down(told: Told, replicas: int) -> str:
    decision, settings = told.decision, told.settings
    low = settings.pool(decision.pool).min_replicas
    if replicas <= low:
        return f"It does not shrink below its minimum of {low}."
    asked = decision.override
    if asked is not None and asked.replicas is not None and replicas <= asked.replicas:
        left_s = asked.until_s - told.at_s
        return f"{asked.by} asked for at least {asked.replicas}, for another {left_s:.0f} s."
    first = _UNTIL.get(decision.reason)
    kept = decision.kept_replicas
    now = "" if kept is None else f", which is {kept} now,"
    return (
        f"It shrinks once {'' if first is None else f'{first} and '}the need with a margin of "
        f"{settings.down_margin_ratio:.0%}{now} was less than {replicas} for "
        f"{_window_s(told):.0f} s on end."
    )


def _window_s(told: Told) -> float:
    """The down window: the stated one, or a start-up where that is known to be longer."""
    said, stated_s = told.decision.forecast, told.settings.down_window_s
    return stated_s if said is None else max(stated_s, said.lead_s - told.settings.tick_s)
