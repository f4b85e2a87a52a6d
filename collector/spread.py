"""How a cumulative histogram grew between two pages, and whether that can be true.

vLLM 0.32 adds the host's uptime to sums when a request fails before it was ever scheduled (for
instance a failed KV pull): queue time falls by it, prefill time rises by it. Such windows are found
here by what their buckets allow. Pure: no clock, no network, no log.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from operator import le, mul, sub

from serving.sums import known_sum
from serving.types import HistogramReading, ReplicaReading


@dataclass(frozen=True, slots=True)
class Growth:
    """What was observed in a window: the sum of it and how many, and the readings behind that."""

    sum: float
    count: float
    now: HistogramReading
    before: HistogramReading | None

    @property
    def bounds(self) -> tuple[float, ...]:
        """The finite upper bounds of the buckets."""
        return self.now.bounds

    def buckets(self) -> list[float]:
        """How many were observed up to each bound and above the one before; the last above all."""
        above = [*self.now.cumulative, self.now.count]
        if self.before is not None:
            above = list(map(sub, above, [*self.before.cumulative, self.before.count]))
        return list(map(sub, above, [0.0, *above]))

    def within(self, limit_s: float) -> tuple[float, float] | None:
        """The least and the most that can have been at or under a limit; `None` if it cannot be.

        Equal where the limit is a bucket bound: exact. Else they are the counts at the bounds
        below and above, of which the first may be 0 and the last all.
        """
        buckets = self.buckets()
        if min(buckets) < 0.0:
            return None
        index = bisect_left(self.bounds, limit_s)
        least, most = known_sum(buckets[:index]), known_sum(buckets[: index + 1])
        if least is None or most is None:
            return None
        return (most if limit_s in self.bounds else least), most


def growth(now: HistogramReading, before: HistogramReading | None) -> Growth | None:
    """The difference of two readings; `None` if bounds changed or a count or the sum fell.

    `before=None` is a histogram that began empty within the window.
    """
    if before is None:
        return Growth(now.sum, now.count, now, None) if now.sum >= 0.0 else None
    if now.bounds != before.bounds or not all(map(le, before.cumulative, now.cumulative)):
        return None
    sum_, count = now.sum - before.sum, now.count - before.count
    if not (0.0 <= sum_ < math.inf and 0.0 <= count < math.inf):
        return None
    return Growth(sum_, count, now, before)


def odd_times(now: ReplicaReading, before: ReplicaReading | None) -> str | None:
    """Why queue and prefill times of this window cannot be believed, or `None` if they can.

    One bad request spoils both, so both are judged and both are dropped. A time is impossible if
    it is less than its bucket, or more than the age of the process.
    """
    failed = _grown(now.failed_requests, before.failed_requests if before else 0.0)
    age_s = None
    if now.process_start_time_s is not None:
        age_s = max(0.0, now.at_s - now.process_start_time_s)
    for field in ("queue_time", "prefill_time"):
        later: HistogramReading | None = getattr(now, field)
        earlier: HistogramReading | None = getattr(before, field) if before else None
        if later is None or (before is not None and earlier is None):
            continue
        fell_s = (earlier.sum if earlier else 0.0) - later.sum
        if fell_s > 0.0:
            return f"{field} fell by {fell_s:.0f} s: queue and prefill times are not used"
        grown = growth(later, earlier)
        if grown is None or grown.count <= 0.0:
            continue
        if not _possible(grown, age_s=age_s, failed=failed):
            return (
                f"{field} of {grown.count:.0f} requests grew by {grown.sum:.0f} s, "
                "which cannot be: queue and prefill times are not used"
            )
    return None


def _possible(grown: Growth, *, age_s: float | None, failed: float | None) -> bool:
    buckets = grown.buckets()
    if min(buckets) < 0.0:
        return False
    least = sum(map(mul, buckets, (0.0, *grown.bounds)))
    if grown.sum < least - 1e-6 - 1e-9 * least:
        return False
    if age_s is None:
        return not failed
    top = max(index for index, n in enumerate(buckets) if n > 0.0)
    most_below = sum(map(mul, buckets[:top], grown.bounds))
    if grown.sum - most_below > buckets[top] * (age_s + 1.0):
        return False
    # Uptime is at least the process's age: after a failure, a sample that may be as long is it.
    return not failed or (top < len(grown.bounds) and grown.bounds[top] < age_s)


def _grown(now: float | None, before: float | None) -> float | None:
    return now - before if now is not None and before is not None else None
