"""What should wake a person: alerts as rows of data, with every threshold in one place.

Each reads recorded (`phase:*`) and our own (`phasewise_*`) series only. Where a series is absent
an alert about its value is silent: that it is absent is an alert of its own. Series are reduced
to the labels that matter, so that another `instance` after a restart neither splits nor doubles.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from serving.types import Phase


class Severity(StrEnum):
    """`critical` wakes a person, `warning` waits for the working day."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When each alert speaks. Times are seconds, ratios 0-1 or one count over another.

    `stale_s`: no tick for so long (eight of 15 s), and `remembered` how long a series that ended
    is still missed. `silent_s`: a source said nothing for so long (twelve reads of 5 s, three
    times the age at which phasewise turns blind). `skew_ratio`: how far the needed mix of pools
    may lie from the present one, `waiting_per_replica` and `idle_ratio` what short and idle are,
    `least_requests_per_s` the traffic below which no mix means anything.
    """

    stale_s: int = 120
    silent_s: int = 60
    remembered: str = "30m"
    skew_ratio: float = 1.25
    waiting_per_replica: float = 1.0
    idle_ratio: float = 0.6
    least_requests_per_s: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. `lasts` is how long its expression must hold; `summary` carries no value.

    `description` names the object and the value; it may use Prometheus's templates.
    """

    name: str
    severity: Severity
    lasts: str
    expr: str
    summary: str
    description: str


_TICK = "phasewise_last_tick_timestamp_seconds"
_AGE = "phasewise_source_age_seconds"


def decision_stale(at: Thresholds) -> Alert:
    """No tick: nothing sizes the tier, whoever asks for a size gets an error."""
    return Alert(
        name="PhasewiseDecisionStale",
        severity=Severity.CRITICAL,
        lasts="1m",
        # The maximum over time keeps a tier in sight whose series ended with its process. When
        # none is left in memory, or there never was one, the second half takes over.
        expr=f"time() - max by (tier) (max_over_time({_TICK}[{at.remembered}])) > {at.stale_s}\n"
        f"or\nabsent_over_time({_TICK}[{at.remembered}])",
        summary="phasewise does not plan a tier any more, so its pools keep their sizes.",
        description="{{ with $labels.tier }}The last plan of tier {{ . }} is"
        " {{ $value | humanizeDuration }} old.{{ else }}No tier has been planned for"
        f" {at.remembered}, or phasewise's metrics page is not scraped."
        "{{ end }} Pools keep their sizes while demand moves on.",
    )


def source_silent(at: Thresholds) -> Alert:
    """A source stopped, while phasewise itself goes on (else `decision_stale` says it all)."""
    known = f"max by (tier, source) ({_AGE})"
    seen = f"max by (tier, source) (max_over_time(timestamp({_AGE})[{at.remembered}:15s]))"
    troubled = 'max by (tier, source) (phasewise_problems{source!="plan"})'
    return Alert(
        name="PhasewiseSourceSilent",
        severity=Severity.WARNING,
        lasts="2m",
        # Too old; or its series ended, with the time since then; or it has only ever had problems,
        # which counts as just too old. One that never had an age has no series to be compared with.
        expr=f"(\n  {known} > {at.silent_s}\n"
        f"  or\n  (time() - {seen} unless {known})\n"
        f"  or\n  (({troubled} > bool 0) * {at.silent_s} > 0 unless {known})\n)\n"
        f"and on (tier)\n  time() - max by (tier) ({_TICK}) <= {at.stale_s}",
        summary="A source that a tier is sized by has gone silent, so what it feeds is held.",
        description="Source {{ $labels.source }} of tier {{ $labels.tier }} has said nothing good"
        " for at least {{ $value | humanizeDuration }}. What is sized by it may grow on what else"
        " is known, and does not shrink.",
    )


def short_while_other_idle(at: Thresholds) -> Alert:
    """One pool makes requests wait while the other has room: the mix of pools is wrong."""
    prefill_short = _short(
        at,
        short=Phase.PREFILL,
        idle=Phase.DECODE,
        waiting=_of_pool("phase:requests_waiting:sum", phase="prefill"),
        skew=f"{_MIX} > {at.skew_ratio:g}",
    )
    decode_short = _short(
        at,
        short=Phase.DECODE,
        idle=Phase.PREFILL,
        # Requests that are deferred wait for their KV: more decode would not help them.
        waiting=f"{_of_pool('phase:requests_waiting:sum', phase='decode')}"
        f" - {_of_pool('phase:requests_deferred:sum', phase='decode')}",
        skew=f"{_MIX} < {1.0 / at.skew_ratio:g}",
    )
    return Alert(
        name="PhasewisePoolShortWhileOtherIdle",
        severity=Severity.WARNING,
        lasts="10m",  # longer than a start: what phasewise is already mending wakes nobody
        expr=f"{prefill_short}\nor\n{decode_short}",
        summary="One phase of a tier makes requests wait while the other has room to spare.",
        description="In tier {{ $labels.tier }} {{ $labels.short }} has requests waiting while"
        " {{ $labels.idle }} is idle: the needed mix of pools over the present one is"
        ' {{ $value | printf "%.2f" }} (1 is right).',
    )


def _of_pool(name: str, **labels: str) -> str:
    matchers = ", ".join(f'{label}="{value}"' for label, value in labels.items())
    return f"max by (tier, pool, phase) ({name}{{{matchers}}})"


_MIX = "max by (tier) (phasewise_demand_ratio) / (max by (tier) (phasewise_replica_ratio) > 0)"


def _short(at: Thresholds, *, short: Phase, idle: Phase, waiting: str, skew: str) -> str:
    """Skewed, and work waits here, and the other has room, and there is traffic to speak of."""
    of_short = _of_pool("phasewise_replicas", phase=short, state="ready")
    of_idle = _of_pool("phasewise_replicas", phase=idle, state="ready")
    capacity = _of_pool("phasewise_capacity_tokens_per_second", phase=idle)
    demand = f'max by (tier) (phasewise_demand_tokens_per_second{{phase="{idle}"}})'
    return (
        f'label_replace(label_replace(\n  {skew}, "short", "{short}", "", ""),'
        f' "idle", "{idle}", "", "")\n'
        f"and on (tier)\n  sum by (tier) ({waiting})\n    / (sum by (tier) ({of_short}) > 0)"
        f" > {at.waiting_per_replica:g}\n"
        f"and on (tier)\n  {demand}\n    / (sum by (tier) ({capacity} * {of_idle}) > 0)"
        f" < {at.idle_ratio:g}\n"
        f"and on (tier)\n  max by (tier) (phase:user_requests:rate1m) > {at.least_requests_per_s:g}"
    )


AT = Thresholds()
ALERTS: tuple[Alert, ...] = (
    decision_stale(AT),
    source_silent(AT),
    short_while_other_idle(AT),
)
"""Every alert; each has a runbook of its name in `alerts/runbooks/`."""
