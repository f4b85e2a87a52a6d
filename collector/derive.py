"""From the windows of a pool's replicas to one `PhaseSample`.

Rates are differences of counters over the true time between two pages; means are differences of
sums over differences of counts. What too few replicas reported is `None`; else sums are scaled up
to the expected number. When a measurement was last known is not known here (see `observe`).
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from collector.spread import Growth, growth, odd_times
from collector.steps import window_steps
from collector.timeline import Window
from serving.sums import known_sum
from serving.types import (
    HistogramReading,
    Measurement,
    Phase,
    PhaseSample,
    PoolId,
    ReplicaReading,
)

COUNTERS = {
    "finished_requests_per_s": "finished_requests",
    "failed_requests_per_s": "failed_requests",
    "prompt_tokens_per_s": "prompt_tokens",
    "computed_prompt_tokens_per_s": "computed_prompt_tokens",
    "cached_prompt_tokens_per_s": "cached_prompt_tokens",
    "transferred_prompt_tokens_per_s": "transferred_prompt_tokens",
    "output_tokens_per_s": "output_tokens",
    "preemptions_per_s": "preemptions",
    "kv_transfer_failures_per_s": "kv_transfer_failures",
    "kv_expired_requests_per_s": "kv_expired_requests",
}
GAUGES = ("running_requests", "waiting_requests", "deferred_requests")
MEANS = {
    "ttft_mean_s": "ttft",
    "itl_mean_s": "itl",
    "queue_time_mean_s": "queue_time",
    "prefill_time_mean_s": "prefill_time",
    "request_prompt_tokens_mean": "request_prompt_tokens",
    "request_output_tokens_mean": "request_output_tokens",
    "kv_transfer_time_mean_s": "kv_transfer_time",
}
WITHIN_SLO = "tpot_within_slo_ratio"
SPREADS = (*MEANS.values(), "step_tokens", "kv_transfer_bytes", "tpot")
MEASUREMENTS = (
    *COUNTERS,
    *GAUGES,
    *MEANS,
    *("steps_per_s", "step_tokens_per_s", "kv_transfer_bytes_per_s"),
    *("kv_used_tokens", "kv_capacity_tokens"),
    *("hottest_running_requests", "hottest_kv_used_ratio", WITHIN_SLO),
)
"""Every measurement of a `PhaseSample`, by field name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaWindow:
    """One replica's window. `ready` replicas are expected to report; draining ones still work.

    `from_zero`: the replica began to serve within the window, so its counters rose from zero.
    """

    replica: str
    ready: bool
    window: Window[ReplicaReading]
    from_zero: bool = False


class Part(NamedTuple):
    """What one replica contributes to a measurement, and the moment that it is of."""

    ready: bool
    value: float
    at_s: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """How many replicas should report, the share that must, and the time now.

    `empty`: it is known that the pool is asked to have no replica and that none is ready, so that
    nothing reported is really nothing. A pool that is asked to have some is never empty: where its
    replicas are not listed, or not yet ready, what it does is unknown.
    """

    expected: int
    empty: bool
    floor_ratio: float
    now_s: float


def derive_phase_sample(
    pool: PoolId,
    windows: Sequence[ReplicaWindow],
    *,
    census: Census,
    window_start_s: float,
    itl_slo_s: float | None = None,
    problems: Sequence[str] = (),
) -> PhaseSample:
    """One pool's sample. `problems` are prepended to what is found wrong here.

    `itl_slo_s` is the SLO of a request's own mean gap, which is judged where tokens are decoded: on
    prefill every request has one token, and a gap of 0.
    """
    said = list(problems)
    gauges = [w for w in windows if w.window.current is not None]
    rates = [w for w in gauges if w.window.previous is not None or w.from_zero]
    values: dict[str, Measurement] = {}
    for name, field in COUNTERS.items():
        values[name] = _sum(_counter_parts(rates, field, said), census)
    for name in GAUGES:
        values[name] = _sum(_parts(gauges, lambda r, f=name: getattr(r, f)), census)  # type: ignore[misc]
    spreads: dict[str, list[tuple[ReplicaWindow, Growth]]] = {field: [] for field in SPREADS}
    judged = pool.phase is not Phase.PREFILL and itl_slo_s is not None
    fields = SPREADS if judged else tuple(field for field in SPREADS if field != "tpot")
    for one in rates:
        for field, grown in _growths(one, fields, said):
            spreads[field].append((one, grown))
    counted: list[tuple[str, float]] = []
    for name, field in MEANS.items():
        parts = [_growth_part(one, g) for one, g in spreads[field]]
        values[name] = _mean(parts, census)
        if values[name].value is not None:
            counted.append((name, known_sum(part.weight for part in parts) or 0.0))
    if itl_slo_s is not None:
        within = [_within_part(one, g, itl_slo_s) for one, g in spreads["tpot"]]
        parts = [part for part in within if part is not None]
        values[WITHIN_SLO] = _mean(parts, census)
        if values[WITHIN_SLO].value is not None:
            counted.append((WITHIN_SLO, known_sum(part.weight for part in parts) or 0.0))
    steps = spreads["step_tokens"]
    values["steps_per_s"] = _sum([_rate_part(w, g.count) for w, g in steps], census)
    values["step_tokens_per_s"] = _sum([_rate_part(w, g.sum) for w, g in steps], census)
    sent = spreads["kv_transfer_bytes"]
    values["kv_transfer_bytes_per_s"] = _sum([_rate_part(w, g.sum) for w, g in sent], census)
    ready = [w for w in gauges if w.ready]
    values["kv_used_tokens"] = _sum(_parts(gauges, _kv_used_tokens), census)
    values["kv_capacity_tokens"] = _sum(_parts(ready, lambda r: r.kv_capacity_tokens), census)
    running = _parts(gauges, lambda r: r.running_requests)
    values["hottest_running_requests"] = _hottest(running, census)
    used = _parts(gauges, lambda r: r.kv_used_ratio)
    values["hottest_kv_used_ratio"] = _hottest(used, census)
    steps_added = window_steps(
        ((w.replica, w.window.current, None if w.from_zero else w.window.previous) for w in rates),
        said,
    )
    return PhaseSample(
        pool=pool,
        window_start_s=window_start_s,
        window_s=census.now_s - window_start_s,
        replicas_expected=census.expected,
        replicas_reporting=sum(1 for w in rates if w.ready),
        problems=tuple(said),
        counted=tuple(counted),
        steps=steps_added,
        **values,
    )


def _kv_used_tokens(reading: ReplicaReading) -> float | None:
    if reading.kv_used_ratio is None or reading.kv_capacity_tokens is None:
        return None
    return reading.kv_used_ratio * reading.kv_capacity_tokens


def _parts(
    windows: Sequence[ReplicaWindow], read: Callable[[ReplicaReading], float | None]
) -> list[Part]:
    """The gauges of the replicas that have one; a negative or infinite gauge is not known."""
    parts: list[Part] = []
    for one in windows:
        current = one.window.current
        value = read(current) if current is not None else None
        if value is not None and 0.0 <= value < math.inf:
            parts.append(Part(one.ready, value, one.window.at_s))
    return parts


def _counter_parts(rates: Sequence[ReplicaWindow], field: str, said: list[str]) -> list[Part]:
    parts: list[Part] = []
    for one in rates:
        now: float | None = getattr(one.window.current, field)
        before = 0.0 if one.from_zero else getattr(one.window.previous, field)
        if now is None or before is None:
            continue
        grown = now - before
        if 0.0 <= grown < math.inf:
            parts.append(_rate_part(one, grown))
        else:
            said.append(f"{one.replica}: {field} fell by {-grown:g}: its rate is not known")
    return parts


def _rate_part(one: ReplicaWindow, grown: float) -> Part:
    return Part(one.ready, grown / one.window.dt_s, one.window.at_s)


def _growth_part(one: ReplicaWindow, grown: Growth) -> Part:
    return Part(one.ready, grown.sum, one.window.at_s, grown.count)


def _within_part(one: ReplicaWindow, grown: Growth, limit_s: float) -> Part | None:
    """The requests of a replica that ended well, and how many of them kept the limit.

    `None` if the limit is no bucket bound there. A request that failed before its first token is in
    the histogram with a gap of 0: as many as failed are taken out of both.
    """
    within = grown.within(limit_s)
    if within is None or limit_s not in grown.bounds:
        return None
    now, before = one.window.current, None if one.from_zero else one.window.previous
    failed_now = (now.failed_requests if now is not None else None) or 0.0
    failed = max(0.0, failed_now - ((before.failed_requests if before else None) or 0.0))
    ended = max(0.0, grown.count - failed)
    return Part(one.ready, max(0.0, within[0] - failed), one.window.at_s, ended)


def _growths(
    one: ReplicaWindow, fields: Sequence[str], said: list[str]
) -> list[tuple[str, Growth]]:
    """How each histogram of a replica grew; those that cannot be true are left out and named."""
    found: list[tuple[str, Growth]] = []
    now, before = one.window.current, None if one.from_zero else one.window.previous
    odd = odd_times(now, before) if now is not None else None
    if odd is not None:
        said.append(f"{one.replica}: {odd}")
    for field in fields:
        later: HistogramReading | None = getattr(now, field)
        earlier: HistogramReading | None = None if before is None else getattr(before, field)
        if later is None or (earlier is None and not one.from_zero):
            continue
        if odd is not None and field in ("queue_time", "prefill_time"):
            continue
        grown = growth(later, earlier)
        if grown is None:
            said.append(f"{one.replica}: {field} grew in no way that a histogram can")
        else:
            found.append((field, grown))
    return found


def _sum(parts: Sequence[Part], census: Census) -> Measurement:
    """The sum over the pool, scaled up from the ready replicas that reported to those expected."""
    coverage = _coverage(parts, census)
    if coverage is None:
        return Measurement(0.0, 0.0, 1.0) if census.empty else Measurement()
    if coverage < census.floor_ratio:
        return Measurement(None, None, coverage)
    ready = [part.value for part in parts if part.ready]
    draining = [part.value for part in parts if not part.ready]
    scale = census.expected / len(ready) if ready else 1.0
    return _measured(known_sum([*(value * scale for value in ready), *draining]), parts, census)


def _mean(parts: Sequence[Part], census: Census) -> Measurement:
    """Sum of sums over sum of counts; not known while nothing was counted."""
    coverage = _coverage(parts, census)
    if coverage is None:
        return Measurement(coverage_ratio=1.0) if census.empty else Measurement()
    count = known_sum(part.weight for part in parts)
    if coverage < census.floor_ratio or not count or count < 0.0:
        return Measurement(None, None, min(coverage, 1.0))
    total = known_sum(part.value for part in parts)
    return _measured(None if total is None else total / count, parts, census)


def _hottest(parts: Sequence[Part], census: Census) -> Measurement:
    """The largest of the parts: not scaled, a replica that does not report may be hotter."""
    coverage = _coverage(parts, census)
    if coverage is None:
        return Measurement(0.0, 0.0, 1.0) if census.empty else Measurement()
    if coverage < census.floor_ratio:
        return Measurement(None, None, coverage)
    return _measured(max(part.value for part in parts), parts, census)


def _measured(value: float | None, parts: Sequence[Part], census: Census) -> Measurement:
    """The value with its age and coverage; what is too large for a number is not known."""
    coverage = min(_coverage(parts, census) or 0.0, 1.0)
    if value is None or not math.isfinite(value):
        return Measurement(None, None, coverage)
    return Measurement(value, _age_s(parts, census), coverage)


def _coverage(parts: Sequence[Part], census: Census) -> float | None:
    """The share of expected replicas behind the parts; `None` if there is nothing to share.

    With no ready replica expected, draining ones are all that there is: they cover the pool if
    it is known to be empty otherwise.
    """
    if census.expected == 0:
        return 1.0 if parts and census.empty else None
    return sum(1 for part in parts if part.ready) / census.expected


def _age_s(parts: Sequence[Part], census: Census) -> float:
    return max(0.0, census.now_s - max(part.at_s for part in parts))
