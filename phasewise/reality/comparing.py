"""Every catalogued series of a pair, live and simulated: is it there, is it alike, how far apart.

A row is one series on one target, split by the labels that change what it means (source, reason).
Ratios are simulated by live. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from phasewise.reality.recording import TARGETS
from phasewise.reality.run import Run, p90
from serving.catalogue import CATALOGUE, RENAMED, MetricSpec, MetricType, Owner, Unit
from serving.types import Phase

SPLITS = ("source", "reason", "finished_reason", "error_type")
"""Labels that part a series into several meanings; workers, routes and ranks are summed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A series in one run. `count` is what a histogram counted; `mean` a counter's growth in all.

    `labels` are the names of its labels, `bounds` those of its buckets.
    """

    type: str
    labels: frozenset[str]
    bounds: tuple[float, ...]
    mean: float | None
    p90: float | None
    count: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One series on one target; a side is `None` where no page of that run has it."""

    target: str
    spec: MetricSpec
    split: tuple[tuple[str, str], ...]
    live: Side | None
    simulated: Side | None

    @property
    def differences(self) -> tuple[str, ...]:
        """What differs in kind, in words."""
        if self.live is None and self.simulated is None:
            return ()
        if self.live is None:
            return ("only simulated",)
        if self.simulated is None:
            return ("only live",)
        one, other = self.live, self.simulated
        return tuple(
            words
            for differs, words in (
                (one.type != other.type, f"type {one.type} live, {other.type} simulated"),
                (one.labels != other.labels, _label_words(one.labels, other.labels)),
                (one.bounds != other.bounds, "other bucket bounds"),
                (_moved(one) is True and _moved(other) is False, "moves live only"),
                (_moved(one) is False and _moved(other) is True, "moves simulated only"),
            )
            if differs
        )

    @property
    def mean_ratio(self) -> float | None:
        """Simulated by live of the mean (of a counter: of its growth); `None` where live is 0."""
        return _ratio(mean_of(self.simulated), mean_of(self.live))

    @property
    def p90_ratio(self) -> float | None:
        """The same of the 90th percentile."""
        return _ratio(p90_of(self.simulated), p90_of(self.live))


def mean_of(side: Side | None) -> float | None:
    """The mean, where there is a side and it has one."""
    return side.mean if side is not None else None


def p90_of(side: Side | None) -> float | None:
    """The 90th percentile, where there is a side and it has one."""
    return side.p90 if side is not None else None


def compare(live: Run, simulated: Run) -> tuple[Row, ...]:
    """All rows: by target, then in the order of the catalogue."""
    return tuple(
        Row(
            target=target,
            spec=spec,
            split=split,
            live=_side(live, target, spec, split),
            simulated=_side(simulated, target, spec, split),
        )
        for target in TARGETS
        for spec in _specs(target)
        for split in _splits((live, simulated), target, spec)
    )


def families(run: Run, target: str) -> frozenset[str]:
    """Every family that the pages of a target declare, `_created` among them."""
    return frozenset(name for read in run.pages[target] for name in read.types)


def _specs(target: str) -> Iterable[MetricSpec]:
    owners = (
        {Owner.PROCESS, Owner.VLLM}
        if target in {phase.value for phase in Phase}
        else {Owner.VLLM_ROUTER}
    )
    return (spec for spec in CATALOGUE if spec.owner in owners and spec.absence != RENAMED)


def _splits(
    runs: Iterable[Run], target: str, spec: MetricSpec
) -> list[tuple[tuple[str, str], ...]]:
    found = {
        tuple((name, value) for name, value in labels if name in SPLITS)
        for run in runs
        for sample in spec.sample_names[-1:]
        for labels in run.label_sets(target, sample)
    }
    return sorted(found) or [()]


def _side(
    run: Run, target: str, spec: MetricSpec, split: tuple[tuple[str, str], ...]
) -> Side | None:
    sets = [ls for ls in run.label_sets(target, spec.sample_names[-1]) if set(split) <= set(ls)]
    kind = run.type_of(target, spec.name)
    if not sets or kind is None:
        return None
    labels = frozenset(name for own in sets for name, _ in own)
    mean: float | None
    if spec.type is MetricType.HISTOGRAM:
        grown = run.grown(target, spec.name)
        if grown is None:
            return None
        mean = grown.sum / grown.count if grown.count else None
        return Side(
            type=kind,
            labels=labels,
            bounds=grown.bounds,
            mean=mean,
            p90=p90(grown),
            count=grown.count,
        )
    if spec.type is MetricType.COUNTER:
        mean, ninety = run.growth(target, spec.name, **dict(split)), None
    elif spec.unit is Unit.INFO or spec.name == "process_start_time_seconds":
        mean, ninety = None, None
    else:
        values = run.over_time(target, spec.name, **dict(split))
        mean = sum(values) / len(values)
        ninety = sorted(values)[int(0.9 * (len(values) - 1))]
    return Side(type=kind, labels=labels, bounds=(), mean=mean, p90=ninety, count=None)


def _moved(side: Side) -> bool | None:
    """Whether anything was counted or ever shown; `None` for what is only there."""
    if side.count is not None:
        return side.count > 0.0
    return None if side.mean is None else side.mean != 0.0


def _ratio(simulated: float | None, live: float | None) -> float | None:
    return simulated / live if simulated is not None and live else None


def _label_words(live: frozenset[str], simulated: frozenset[str]) -> str:
    return (
        f"labels only live: {', '.join(sorted(live - simulated)) or 'none'}; "
        f"only simulated: {', '.join(sorted(simulated - live)) or 'none'}"
    )
