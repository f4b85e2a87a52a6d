"""What a number of requests say together: each part's mean, median and 90th percentile, by pool.

Quantiles are of the requests themselves, never of averages. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collector.traces.parts import Outcome, Part, RequestTrace

TTFT = "ttft"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSummary:
    """One part of the requests of one pool (`None`: nobody says which), in seconds."""

    part: str
    pool: str | None
    requests: int
    mean_s: float
    p50_s: float
    p90_s: float


def summarise(traces: Iterable[RequestTrace]) -> tuple[PartSummary, ...]:
    """By part, in the order of a request's life, then by pool; `ttft` last.

    Of requests whose halves are all there; the others are a count elsewhere.
    """
    found: dict[tuple[str, str | None], list[float]] = {}
    for trace in traces:
        if trace.outcome not in (Outcome.JOINED, Outcome.AGGREGATED):
            continue
        for one in trace.parts:
            found.setdefault((one.part.value, trace.pool_of(one.part)), []).append(one.duration_s)
        if trace.ttft_s is not None:
            found.setdefault((TTFT, None), []).append(trace.ttft_s)
    order = [*(part.value for part in Part), TTFT]
    keys = sorted(found, key=lambda key: (order.index(key[0]), key[1] or ""))
    return tuple(_summary(*key, sorted(found[key])) for key in keys)


def _summary(part: str, pool: str | None, sorted_s: Sequence[float]) -> PartSummary:
    return PartSummary(
        part=part,
        pool=pool,
        requests=len(sorted_s),
        mean_s=sum(sorted_s) / len(sorted_s),
        p50_s=_quantile(sorted_s, 0.5),
        p90_s=_quantile(sorted_s, 0.9),
    )


def _quantile(sorted_s: Sequence[float], share: float) -> float:
    """The smallest that at least `share` of all do not exceed."""
    index = max(0, -(-round(share * 1000) * len(sorted_s) // 1000) - 1)
    return sorted_s[index]
