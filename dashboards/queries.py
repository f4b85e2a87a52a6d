"""PromQL of catalogue names: each expression knows its unit, so that no panel can state another.

Only recorded series (`phase:*`) and our own (`phasewise_*`) are asked for; both are as the
catalogue says, and a name that is not in it is refused here. Every read is reduced to the labels
that are asked for, so that a restart of the supplier (another `instance`) joins and counts once.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass

from serving.catalogue import MetricSpec, MetricType, Owner, Unit
from serving.series import SPEC_OF_SAMPLE

_CHOSEN = {"tier": 'tier="$tier"', "pool": 'pool=~"$pool"', "phase": 'phase=~"$phase"'}
"""How the choices at the top of a dashboard narrow a series that has the label."""

_PER_SECOND = {
    Unit.TOKENS: Unit.TOKENS_PER_S,
    Unit.BYTES: Unit.BYTES_PER_S,
    Unit.REQUESTS: Unit.REQUESTS_PER_S,
    Unit.EVENTS: Unit.EVENTS_PER_S,
    Unit.SECONDS: Unit.RATIO,
}
_NEVER_ADDED = (Unit.RATIO, Unit.SECONDS, Unit.INFO)


@dataclass(frozen=True, slots=True)
class Expr:
    """PromQL and the unit of its values."""

    text: str
    unit: Unit

    def __str__(self) -> str:
        return self.text


def spec_of(name: str) -> MetricSpec:
    """What the catalogue says of one of the names that dashboards may read; KeyError if it may not.

    A histogram's parts are known by their sample names.
    """
    spec = SPEC_OF_SAMPLE[name]
    if spec.owner not in (Owner.RECORDED, Owner.PHASEWISE):
        raise KeyError(f"{name} is a native series: read the recorded one")
    return spec


def selector(name: str, **only: str | None) -> str:
    """The series under the choices at the top; `only` fixes a label instead, `None` opens it.

    A value with a `|` is one of several.
    """
    labels = spec_of(name).labels
    parts = [_CHOSEN[label] for label in _CHOSEN if label in labels and label not in only]
    fixed = {label: value for label, value in only.items() if value is not None}
    parts += [f'{label}{"=~" if "|" in value else "="}"{value}"' for label, value in fixed.items()]
    return f"{name}{{{', '.join(parts)}}}"


def _each(function: str, by: tuple[str, ...], vector: str) -> str:
    return f"{function} by ({', '.join(by)}) ({vector})" if by else f"{function}({vector})"


def gauge(name: str, *by: str, **only: str | None) -> Expr:
    """The value of a gauge for each combination of the labels `by`."""
    spec = spec_of(name)
    _refuse(spec.type is not MetricType.GAUGE, name, "a gauge")
    return Expr(_each("max", by, selector(name, **only)), spec.unit)


def rate(name: str, *by: str, window: str = "$__rate_interval") -> Expr:
    """How fast a counter grows."""
    spec = spec_of(name)
    _refuse(spec.type is MetricType.GAUGE, name, "a counter")
    grown = f"rate({selector(name)}[{window}])"
    per_second = Unit.EVENTS_PER_S if name.endswith("_count") else _PER_SECOND[spec.unit]
    return Expr(_each("sum", by, grown), per_second)


def mean(histogram: str, *by: str) -> Expr:
    """The mean of what a histogram counted lately; nothing where nothing was counted."""
    spread = over(rate(f"{histogram}_sum", *by), rate(f"{histogram}_count", *by))
    return Expr(spread.text, spec_of(histogram + "_sum").unit)


def over(part: Expr, whole: Expr) -> Expr:
    """One by the other; nothing, rather than NaN or infinity, where the other is not above zero."""
    unit = Unit.RATIO if part.unit is whole.unit else part.unit
    return Expr(f"{part} / ({whole} > 0)", unit)


def times(one: Expr, other: Expr, *, on: str) -> Expr:
    """A figure per replica times replicas, matched on the label `on`."""
    return Expr(f"{one} * on ({on}) {other}", one.unit)


def as_events(of: Expr) -> Expr:
    """Requests per second as events, to stand beside events of another kind."""
    _refuse(of.unit is not Unit.REQUESTS_PER_S, of.text, "a rate of requests")
    return Expr(of.text, Unit.EVENTS_PER_S)


def summed(of: Expr, *by: str) -> Expr:
    """The sum of an expression; ratios, means and ages are refused, for they do not add up."""
    _refuse(of.unit in _NEVER_ADDED, of.text, "something that adds up")
    return Expr(_each("sum", by, of.text), of.unit)


def mean_over_requests(share: str, window: str = "$__range") -> Expr:
    """A share of requests over a long time: each instant weighs by the requests that ended then.

    Times at which the share is not known weigh nothing, in the sum and in its divisor.
    """
    ended = gauge("phase:user_requests_finished:rate1m", "tier")
    of = gauge(share, "tier")
    met = f"sum_over_time(({of} * on (tier) {ended})[{window}:30s])"
    counted = f"sum_over_time(({ended} and on (tier) {of})[{window}:30s])"
    return over(Expr(met, Unit.REQUESTS), Expr(counted, Unit.REQUESTS))


def budget_left(share: str, objective: str, window: str = "$__range") -> Expr:
    """The part of the misses that an objective allows which is not used up; negative when broken.

    1 - missed / (1 - objective); nothing where the objective allows no miss at all.
    """
    attained = mean_over_requests(share, window)
    allowed = Expr(f"(1 - {gauge(objective, 'tier')})", Unit.RATIO)
    used = over(Expr(f"(1 - {attained})", Unit.RATIO), allowed)
    return Expr(f"1 - {used}", Unit.RATIO)


def growth(name: str, *by: str, window: str = "1h", **only: str | None) -> Expr:
    """By how much a counter grew over a time."""
    spec = spec_of(name)
    _refuse(spec.type is MetricType.GAUGE, name, "a counter")
    grown = f"increase({selector(name, **only)}[{window}])"
    return Expr(_each("sum", by, grown), spec.unit)


def changes(name: str, *by: str, window: str = "1m") -> Expr:
    """Where a gauge changed lately; nothing where it did not."""
    changed = f"changes({selector(name)}[{window}])"
    return Expr(f"{_each('max', by, changed)} > 0", Unit.EVENTS)


def age(timestamp: str, *by: str) -> Expr:
    """Seconds since the time that a gauge tells."""
    return Expr(f"time() - {gauge(timestamp, *by)}", Unit.SECONDS)


def _refuse(wrong: bool, name: str, expected: str) -> None:
    if wrong:
        raise ValueError(f"{name} is not {expected}")
