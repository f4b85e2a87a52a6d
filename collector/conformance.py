"""Does a page carry what phasewise reads? What is there, what is not, and what that costs.

It judges one page against the catalogue, and two pages against each other (does it stand still?).
What a replica is, it takes from the evidence or from who asks.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from collector.costs import EXPECTED, HISTOGRAMS, OUTDATED, Expected, Weight
from collector.evidence import Dialect, series_names
from serving.catalogue import CATALOGUE, MetricType, Owner
from serving.dialects.page import Page, histogram, total
from serving.types import Phase

_PARTS = ("_bucket", "_sum", "_count")
_OWNERS = {
    Dialect.VLLM: (Owner.VLLM, Owner.PROCESS),
    Dialect.SIMULATOR: (Owner.VLLM, Owner.PROCESS),
    Dialect.RAY: (Owner.VLLM,),
    Dialect.DYNAMO: (Owner.VLLM, Owner.PROCESS),
    Dialect.EPP: (Owner.EPP,),
    Dialect.VLLM_ROUTER: (Owner.VLLM_ROUTER,),
}
_NOT_VLLM = {
    Dialect.SIMULATOR: "none: llm-d-inference-sim does not write it; look at an engine",
    Dialect.DYNAMO: "scrape a Dynamo worker that runs vLLM itself: the mocker writes few names",
    Dialect.RAY: "scrape the engine's own /metrics",
}
_HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")


class Fault(StrEnum):
    """What is wrong with a series that should be there."""

    MISSING = "missing"
    NOT_YET = "not there yet"
    UNREADABLE = "unreadable"
    NOT_A_NUMBER = "not a number"
    NEGATIVE = "negative"
    NEGATIVE_SUM = "negative sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One of our words that the page does not fill, or not well.

    `name` is the newest name of the series, `blind` what that costs, `mend` the line that helps.
    """

    field: str
    name: str
    fault: Fault
    weight: Weight
    blind: str
    mend: str
    recorded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OldName:
    """A name of an older version on the page, what took its place, what it costs and mends it.

    Beside its newer name it costs nothing.
    """

    name: str
    words: str
    costs: str | None = None
    mend: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformance:
    """How many of the wanted words a page fills, and what is to be said about the others."""

    present: int
    expected: int
    findings: tuple[Finding, ...]
    old_names: tuple[OldName, ...]

    @property
    def usable(self) -> bool:
        """Whether a pool can be sized from it: nothing that is needed is missing."""
        return self.expected > 0 and not any(f.weight is Weight.NEEDED for f in self.findings)


def conformance_of(page: Page, dialect: Dialect, phase: Phase | None) -> Conformance:
    """One page against the catalogue; an unknown phase is asked for all that any phase needs."""
    owners = _OWNERS.get(dialect, ())
    asked = [row for row in EXPECTED if row.owner in owners and _concerns(row, phase)]
    names = series_names(page)
    found = (_finding(row, page, names, phase, dialect) for row in asked)
    findings = [finding for finding in found if finding is not None]
    findings.sort(key=lambda f: list(Weight).index(f.weight))
    absent = sum(1 for f in findings if f.fault in (Fault.MISSING, Fault.NOT_YET))
    return Conformance(
        present=len(asked) - absent,
        expected=len(asked),
        findings=tuple(findings),
        old_names=tuple(_old_names(names, owners)),
    )


def _concerns(row: Expected, phase: Phase | None) -> bool:
    if phase is None:  # of transfers between the phases nobody knows
        return Phase.BOTH in row.phases
    return phase in row.phases


def _finding(
    row: Expected, page: Page, names: frozenset[str], phase: Phase | None, dialect: Dialect
) -> Finding | None:
    name = next((n for n in row.names if n in names), None)
    if name is None:
        if row.field == "computed_prompt_tokens" and _computed_by_difference(names, phase):
            return None
        fault = Fault.NOT_YET if row.later else Fault.MISSING
        return _found(row, row.names[0], fault, row.weight, mend=_NOT_VLLM.get(dialect))
    problem = _problem(page, name)
    if problem is None:
        return None
    weight = Weight.NICE if problem is Fault.NEGATIVE_SUM else row.weight
    return _found(row, name, problem, weight)


def _found(
    row: Expected, name: str, fault: Fault, weight: Weight, *, mend: str | None = None
) -> Finding:
    blind, mend = row.blind, mend or row.mend
    if fault is Fault.NEGATIVE_SUM:
        blind = "windows in which it fell are thrown away"
        mend = "nothing to do: vLLM writes minus its uptime for a request that failed unscheduled"
    elif fault is Fault.NOT_YET:
        mend = f"send a request; if it stays away: {row.mend}"
    elif fault is not Fault.MISSING:
        mend = "look at the page by hand: a proxy or exporter in between spoils it"
    return Finding(
        field=row.field,
        name=name,
        fault=fault,
        weight=weight,
        blind=blind,
        mend=mend,
        recorded=row.recorded if fault is not Fault.NEGATIVE_SUM else (),
    )


def _computed_by_difference(names: frozenset[str], phase: Phase | None) -> bool:
    """On prefill, before 0.16, prefill work is the prompt less what the cache had."""
    hits = any(name in names for name in _HITS)
    return phase is Phase.PREFILL and hits and "vllm:prompt_tokens_total" in names


def _problem(page: Page, name: str) -> Fault | None:
    parts = [f"{name}{part}" for part in _PARTS] if name in HISTOGRAMS else [name]
    if any(part in page.broken for part in parts):
        return Fault.UNREADABLE
    for part in parts:
        values = list(page.samples.get(part, {}).values())
        if any(math.isnan(value) or math.isinf(value) for value in values):
            return Fault.NOT_A_NUMBER
        if any(value < 0.0 for value in values):
            return Fault.NEGATIVE_SUM if part.endswith("_sum") else Fault.NEGATIVE
    if name in HISTOGRAMS and histogram(page, name) is None:
        return Fault.UNREADABLE
    return None


def _old_names(names: frozenset[str], owners: tuple[Owner, ...]) -> Iterable[OldName]:
    if Owner.VLLM not in owners:
        return
    for old in OUTDATED:
        if old.name not in names:
            continue
        if old.instead is None:
            words, mend = f"removed ({old.gone})", "take it out of panels, alerts and scalers"
        elif old.instead in names:
            words = f"beside its newer name {old.instead}, which alone is counted"
            yield OldName(name=old.name, words=words)
            continue
        else:
            how = "read in its place" if old.read else "not read"
            words = f"now {old.instead} (old name gone by {old.gone}); {how}"
            mend = f"upgrade, then ask for {old.instead}"
        yield OldName(name=old.name, words=words, costs=old.costs, mend=mend)


def standing_still(before: Page, after: Page) -> str | None:
    """Why two pages, a scrape interval apart, are no two looks; `None` if nothing speaks for it.

    Answering a scrape takes CPU, so a process clock that stands still is a copy of a page. Without
    one, requests that run while no counter moves are a sign.
    """
    clock = "process_cpu_seconds_total"
    cpu = total(before, clock), total(after, clock)
    counters = [
        name
        for spec in CATALOGUE
        if spec.type is not MetricType.GAUGE and spec.name != clock
        for name in spec.sample_names
        if name in before.samples and name in after.samples
    ]
    moved = any(before.samples[name] != after.samples[name] for name in counters)
    if cpu[0] is not None and cpu[0] == cpu[1] and not moved:
        return "stale: the same page twice, even its process clock stands still"
    running = total(after, "vllm:num_requests_running")
    if running and counters and not moved:
        return f"stale: {running:,.0f} requests run, but no counter moves"
    return None
