"""A run of a simulated tier in a few JSON numbers. Pure: no clock, no network, no log."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, fsum, isnan

from serving.simulation.tier import SimulatedTier
from serving.types import Slo

Json = dict[str, object]


def outcome_of(tier: SimulatedTier, *, slo: Slo | None = None) -> Json:
    """What became of the requests so far, by the user's clock, and what it took.

    TTFT is that of all requests that arrived: one without a first token (yet) is slower than any,
    so that a quantile that falls on it is `None`. Gaps are those of finished requests. With an
    `slo`, also how many requests met it (its attainment is not used), and how many missed which
    target; requests that have not finished count as missing the first. `minutes` then holds a pair
    for each minute of the trace: how many requests arrived in it, and how many were good.
    """
    outcomes = tier.outcomes
    summary: Json = {
        "now_s": tier.now_s,
        "finished_replaying": tier.finished_replaying,
        "requests": len(outcomes),
        "arrived_requests": tier.router.requests,
        "finished_requests": sum(outcomes.finished),
        "failed_requests": sum(outcomes.failed),
        "ttft_s": distribution(outcomes.ttft_s[: tier.router.requests], missing_is_slowest=True),
        "mean_itl_s": distribution(
            itl_s
            for finished, itl_s in zip(outcomes.finished, outcomes.mean_itl_s, strict=True)
            if finished
        ),
        "replica_seconds": dict(tier.replica_seconds),
        "ready_timeline": {pool: list(points) for pool, points in tier.ready_timeline.items()},
    }
    if slo is not None:
        summary["good_requests"] = outcomes.good_requests(slo)
        summary["ttft_missed_requests"] = sum(
            not (finished and ttft_s <= slo.ttft_s)
            for finished, ttft_s in zip(outcomes.finished, outcomes.ttft_s, strict=True)
        )
        summary["itl_missed_requests"] = sum(
            finished and itl_s > slo.itl_s
            for finished, itl_s in zip(outcomes.finished, outcomes.mean_itl_s, strict=True)
        )
        summary["minutes"] = _minutes(tier, slo)
    return summary


def _minutes(tier: SimulatedTier, slo: Slo) -> list[list[int]]:
    """[arrived, good] of every minute from the trace's second 0 to that of the latest arrival."""
    minutes: list[list[int]] = []
    for index in range(tier.router.requests):
        minute = int(tier.requests[index].arrival_s // 60.0)
        while len(minutes) <= minute:
            minutes.append([0, 0])
        minutes[minute][0] += 1
        minutes[minute][1] += tier.outcomes.is_good(index, slo)
    return minutes


def distribution(
    values: Iterable[float], *, missing_is_slowest: bool = False
) -> dict[str, float | None] | None:
    """Mean and nearest-rank quantiles of the values that are there; `None` if none is.

    With `missing_is_slowest`, NaN ranks above every value: a quantile there is `None`, and the mean
    is that of the values.
    """
    seen = list(values)
    ordered = sorted(value for value in seen if not isnan(value))
    if not ordered:
        return None
    quantiles = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    count = len(seen) if missing_is_slowest else len(ordered)
    ranks = {name: max(ceil(share * count), 1) for name, share in quantiles.items()}
    return {
        "mean": fsum(ordered) / len(ordered),
        **{
            name: ordered[rank - 1] if rank <= len(ordered) else None
            for name, rank in ranks.items()
        },
    }
