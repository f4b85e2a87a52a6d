"""The pages of one run of a pair, read: what the comparison asks of them, live or simulated alike.

It knows how a page is read, not what its series mean. Pure: no clock, no network, no log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from collector.evidence import read_everything
from phasewise.reality.recording import TARGETS, RecordedPage
from serving.dialects.page import Labels, Page, histogram, label
from serving.types import HistogramReading

_TYPE = re.compile(r"^# TYPE (\S+) (\S+)$", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPage:
    """One page and the types that it declares, by the name of the family."""

    at_s: float
    page: Page
    types: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Every page of one run by target, in the order of time."""

    pages: dict[str, tuple[ReadPage, ...]]

    def first(self, target: str) -> Page:
        """The page at the beginning."""
        return self.pages[target][0].page

    def last(self, target: str) -> Page:
        """The page at the end."""
        return self.pages[target][-1].page

    def type_of(self, target: str, name: str) -> str | None:
        """The declared type of a family; `None` where no page has it."""
        return next((r.types[name] for r in reversed(self.pages[target]) if name in r.types), None)

    def label_sets(self, target: str, sample: str) -> frozenset[Labels]:
        """Every label set that a series had on any page."""
        return frozenset(
            labels for r in self.pages[target] for labels in r.page.samples.get(sample, ())
        )

    def growth(self, target: str, sample: str, **labels: str) -> float | None:
        """By how much a counter grew, summed over label sets; absent at first is 0."""
        last = _sum(self.last(target), sample, labels)
        return None if last is None else last - (_sum(self.first(target), sample, labels) or 0.0)

    def grown(self, target: str, name: str) -> HistogramReading | None:
        """A histogram of what was observed in this run only."""
        last, first = histogram(self.last(target), name), histogram(self.first(target), name)
        if last is None:
            return None
        if first is None or first.bounds != last.bounds:
            return last
        return HistogramReading(
            bounds=last.bounds,
            cumulative=tuple(b - a for a, b in zip(first.cumulative, last.cumulative, strict=True)),
            sum=last.sum - first.sum,
            count=last.count - first.count,
        )

    def over_time(self, target: str, sample: str, **labels: str) -> list[float]:
        """What a gauge said on each page that has it, summed over label sets."""
        values = [_sum(r.page, sample, labels) for r in self.pages[target]]
        return [value for value in values if value is not None]


def run_of(pages: Iterable[RecordedPage]) -> Run:
    """Read the pages."""
    by_target: dict[str, list[ReadPage]] = {target: [] for target in TARGETS}
    for page in pages:
        by_target[page.target].append(
            ReadPage(
                at_s=page.at_s,
                page=read_everything(page.text.encode()),
                types=dict(_TYPE.findall(page.text)),
            )
        )
    return Run(pages={target: tuple(read) for target, read in by_target.items()})


def p90(histogram: HistogramReading) -> float | None:
    """The 90th percentile, linear within its bucket; the last bound where it lies above all."""
    if histogram.count <= 0.0 or not histogram.bounds:
        return None
    wanted, below_count, below = 0.9 * histogram.count, 0.0, 0.0
    for bound, count in zip(histogram.bounds, histogram.cumulative, strict=True):
        if count >= wanted:
            share = (wanted - below_count) / (count - below_count) if count > below_count else 1.0
            return below + (bound - below) * share
        below_count, below = count, bound
    return histogram.bounds[-1]


def _sum(page: Page, sample: str, labels: dict[str, str]) -> float | None:
    parts = [
        value
        for own, value in page.samples.get(sample, {}).items()
        if all(label(own, name) == wanted for name, wanted in labels.items())
    ]
    return sum(parts) if parts else None
