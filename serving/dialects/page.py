"""The series that a dialect reads from one page, and how they add up to one number.

A page may carry several label sets of a series (data-parallel ranks, tenants, routes): they are
summed here, and the sum is unknown as soon as one part of it is. What is absent stays `None`.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from serving.sums import LARGEST_READ, known_sum
from serving.types import HistogramReading

Labels = tuple[tuple[str, str], ...]
"""Label names and unescaped values, sorted by name: one label set has one spelling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Samples by series name and label set; a name in `broken` was there but cannot be trusted.

    `broken` names have no samples. `problems` says in words what was wrong with each.
    """

    samples: Mapping[str, Mapping[Labels, float]]
    broken: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()


Keep = Callable[[Labels], bool]


def label(labels: Labels, name: str) -> str | None:
    """The value of one label, or `None` if the label set does not have it."""
    for key, value in labels:
        if key == name:
            return value
    return None


def total(page: Page, name: str, *, keep: Keep | None = None) -> float | None:
    """The sum of a series over its label sets; `None` if absent, or if any part is not a number.

    Counters and the gauges that are read here are never negative, and no such thing is larger than
    `LARGEST_READ`: a part that is makes the sum unknown too.
    """
    parts = page.samples.get(name)
    if not parts:
        return None
    values = [v for labels, v in parts.items() if keep is None or keep(labels)]
    if not values or not all(0.0 <= v <= LARGEST_READ for v in values):
        return None
    return values[0] if len(values) == 1 else known_sum(values)


def first_present(page: Page, names: Iterable[str]) -> str | None:
    """The first of several names for one thing that the page carries, newest name first.

    Engines emit the old and the new name side by side for a while: only one may be counted.
    """
    for name in names:
        if name in page.samples or name in page.broken:
            return name
    return None


def histogram_name(page: Page, names: Iterable[str]) -> str | None:
    """Like `first_present`, for histograms: a name counts as present if any part of it is."""
    for name in names:
        parts = (f"{name}_bucket", f"{name}_count", f"{name}_sum")
        if any(part in page.samples or part in page.broken for part in parts):
            return name
    return None


@lru_cache(maxsize=2048)
def _split_bound(labels: Labels) -> tuple[float, Labels] | None:
    """A bucket's upper bound and its other labels; `None` if the bound is not a number."""
    text = label(labels, "le")
    if text is None:
        return None
    try:
        bound = float(text)
    except ValueError:
        return None
    if math.isnan(bound) or bound == -math.inf:
        return None
    return bound, tuple(pair for pair in labels if pair[0] != "le")


def histogram(page: Page, name: str, *, keep: Keep | None = None) -> HistogramReading | None:
    """One histogram, summed over its label sets at the bucket bounds that all of them share.

    `None` if a part is missing or contradicts another: counts that fall from one bound to the
    next, a `+Inf` bucket that is not `_count`, a label set with no `_sum`, or if a number is larger
    than `LARGEST_READ` (not believed). A negative sum is kept:
    vLLM really writes one, and only the difference of two readings shows what it means.
    """
    counts = page.samples.get(f"{name}_count")
    sums = page.samples.get(f"{name}_sum")
    buckets = page.samples.get(f"{name}_bucket")
    if not counts or not sums or not buckets or counts.keys() != sums.keys():
        return None
    ladders: dict[Labels, dict[float, float]] = {}
    for labels, value in buckets.items():
        split = _split_bound(labels)
        if split is None:
            return None
        bound, rest = split
        ladder = ladders.get(rest)
        if ladder is None:
            ladder = ladders[rest] = {}
        if bound in ladder:  # the same bound spelled twice, as "1" and "1.0"
            return None
        ladder[bound] = value
    if ladders.keys() != counts.keys():
        return None
    parts: list[HistogramReading] = []
    for labels, ladder in ladders.items():
        if keep is not None and not keep(labels):
            continue
        part = _one_histogram(ladder, sum_=sums[labels], count=counts[labels])
        if part is None:
            return None
        parts.append(part)
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else _sum_histograms(parts)


def _one_histogram(
    ladder: Mapping[float, float], *, sum_: float, count: float
) -> HistogramReading | None:
    bounds = tuple(sorted(ladder))
    cumulative = tuple(map(ladder.__getitem__, bounds))
    if bounds[-1] != math.inf or cumulative[-1] != count:
        return None
    if not (cumulative[0] >= 0.0 and count <= LARGEST_READ and abs(sum_) <= LARGEST_READ):
        return None
    if any(not lower <= upper for lower, upper in pairwise(cumulative)):
        return None
    return HistogramReading(bounds=bounds[:-1], cumulative=cumulative[:-1], sum=sum_, count=count)


def _sum_histograms(parts: list[HistogramReading]) -> HistogramReading:
    shared = set(parts[0].bounds).intersection(*(part.bounds for part in parts[1:]))
    bounds = tuple(sorted(shared))
    columns = [dict(zip(part.bounds, part.cumulative, strict=True)) for part in parts]
    return HistogramReading(
        bounds=bounds,
        cumulative=tuple(math.fsum(column[bound] for column in columns) for bound in bounds),
        sum=math.fsum(part.sum for part in parts),
        count=math.fsum(part.count for part in parts),
    )
