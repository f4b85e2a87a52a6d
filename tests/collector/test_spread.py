"""How histograms grow, and which growth of queue and prefill times cannot be true."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collector.spread import growth, odd_times
from serving.types import HistogramReading, ReplicaReading

BOUNDS = (1.0, 10.0, 100.0)


def histogram(*buckets: float, sum_: float) -> HistogramReading:
    """From counts per bucket, the last above all bounds."""
    up = [sum(buckets[: i + 1]) for i in range(len(buckets))]
    return HistogramReading(bounds=BOUNDS, cumulative=tuple(up[:-1]), sum=sum_, count=up[-1])


ZERO = histogram(0, 0, 0, 0, sum_=0.0)


def test_growth_is_the_difference_of_two_readings() -> None:
    grown = growth(histogram(3, 2, 0, 1, sum_=250.0), histogram(1, 2, 0, 0, sum_=12.0))

    assert grown is not None
    assert (grown.sum, grown.count, grown.buckets()) == (238.0, 3.0, [2.0, 0.0, 0.0, 1.0])


def test_a_histogram_that_began_empty_grew_by_all_of_it() -> None:
    grown = growth(histogram(1, 1, 0, 0, sum_=5.0), None)

    assert grown is not None
    assert (grown.sum, grown.count, grown.buckets()) == (5.0, 2.0, [1.0, 1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(histogram(2, 0, 0, 0, sum_=1.0), id="count-fell"),
        pytest.param(histogram(3, 0, 0, 0, sum_=-5.0), id="sum-fell"),
        pytest.param(histogram(2, 1, 0, 1, sum_=9.0), id="one-bucket-fell"),
        pytest.param(replace(histogram(4, 0, 0, 0, sum_=9.0), bounds=(1.0, 2.0, 3.0)), id="bounds"),
    ],
)
def test_what_no_histogram_can_do_is_unknown(later: HistogramReading) -> None:
    assert growth(later, histogram(3, 0, 0, 0, sum_=3.0)) is None


def reading(
    queue: HistogramReading | None,
    prefill: HistogramReading | None,
    *,
    failed: float | None = 0.0,
    age_s: float | None = 50_000.0,
) -> ReplicaReading:
    start_s = None if age_s is None else 1e9 - age_s
    return ReplicaReading(
        replica="r",
        at_s=1e9,
        process_start_time_s=start_s,
        failed_requests=failed,
        queue_time=queue,
        prefill_time=prefill,
    )


GOOD = histogram(10, 0, 0, 0, sum_=2.0)


@pytest.mark.parametrize(
    ("later", "odd"),
    [
        pytest.param(reading(GOOD, GOOD), False, id="plain"),
        pytest.param(reading(histogram(0, 0, 4, 0, sum_=90.0), GOOD), False, id="a-long-queue"),
        pytest.param(reading(GOOD, GOOD, failed=1.0), False, id="failed-after-it-was-scheduled"),
        pytest.param(reading(histogram(1, 0, 0, 0, sum_=-1e6), GOOD), True, id="queue-fell"),
        # 3 requests of 10-100 s and one of -80: together still above zero
        pytest.param(reading(histogram(1, 0, 3, 0, sum_=20.0), GOOD), True, id="less-than-buckets"),
        pytest.param(reading(GOOD, histogram(9, 0, 0, 1, sum_=1e6)), True, id="older-than-process"),
        pytest.param(
            reading(GOOD, histogram(0, 0, 0, 2, sum_=9e4)), False, id="two-may-be-that-long"
        ),
        pytest.param(
            reading(GOOD, histogram(9, 0, 0, 1, sum_=5e4), failed=1.0), True, id="long-as-uptime"
        ),
        pytest.param(
            reading(GOOD, GOOD, failed=1.0, age_s=None), True, id="failed-and-age-unknown"
        ),
        pytest.param(reading(GOOD, GOOD, age_s=None), False, id="age-unknown"),
        pytest.param(reading(None, None), False, id="absent"),
    ],
)
def test_times_that_cannot_be_are_found(later: ReplicaReading, odd: bool) -> None:
    said = odd_times(later, reading(ZERO, ZERO))

    assert (said is not None) == odd


def test_a_sum_that_is_negative_from_before_does_not_spoil_the_next_window() -> None:
    before = reading(histogram(5, 0, 0, 0, sum_=-1918.0), histogram(5, 0, 0, 1, sum_=2_533.0))
    later = reading(histogram(9, 0, 0, 0, sum_=-1917.0), histogram(9, 0, 0, 1, sum_=2_534.0))

    assert odd_times(later, before) is None
