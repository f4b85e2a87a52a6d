"""What a view of a tier consists of; field names are those of its JSON, `None` is not known.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.sources import Source
from autoscaler.types import Forecast, Lead
from serving.types import Slo

Numbers = tuple[float | None, ...]
Counts = tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHistory:
    """Replicas over time. `desired` is what the scale target was asked for, `decided` what the
    plan said, `wanted` what the need alone asks for.
    """

    phase: str
    desired: Counts
    decided: Counts
    ready: Counts
    starting: Counts
    draining: Counts
    wanted: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Two rates over time, in tokens per second."""

    prefill_tokens_per_s: Numbers
    output_tokens_per_s: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A forecast over time, as it was made at each tick for its lead."""

    expected_per_s: Numbers
    upper_per_s: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Everything over time; all lists are as long as `at_s`."""

    at_s: tuple[float, ...]
    pools: dict[str, PoolHistory]
    demand: Rates
    provided: Rates
    forecast: dict[str, Bounds]
    demand_ratio: Numbers
    replica_ratio: Numbers
    ttft_within_slo_ratio: Numbers
    tpot_within_slo_ratio: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedFor:
    """A person's word on a pool."""

    kind: str
    replicas: int | None
    until_s: float
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNow:
    """One pool now."""

    name: str
    phase: str
    desired: int | None
    decided: int | None
    ready: int | None
    starting: int | None
    draining: int | None
    wanted: int | None
    min: int
    max: int
    reason: str
    words: str
    binds: str | None
    hold: bool
    coverage_ratio: float | None
    inputs_age_s: float | None
    override: AskedFor | None
    problems: tuple[str, ...] = ()
    lead: Lead | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One decision; equal holds in a row are one, `ticks` of them since `since_s`."""

    at_s: float
    epoch: int
    pool: str
    before: int | None
    after: int | None
    reason: str
    words: str
    since_s: float
    ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One tier, now and over its last ticks."""

    tier: str
    mode: str
    at_s: float
    epoch: int
    tick_s: float
    slo: Slo
    history: History
    fan: dict[str, Forecast | None]
    pools: tuple[PoolNow, ...]
    decisions: tuple[Said, ...]
    sources: tuple[Source, ...]
    problems: tuple[str, ...]
