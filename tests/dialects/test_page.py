"""How label sets of one series add up, and when they do not."""

from __future__ import annotations

import math

import pytest

from serving.dialects.page import Labels, Page, histogram, total
from serving.types import HistogramReading


def page(**samples: dict[Labels, float]) -> Page:
    return Page(samples=samples)


def buckets(
    counts: dict[str, float], *, sum_: float, count: float, **labels: str
) -> dict[str, dict[Labels, float]]:
    rest = tuple(sorted(labels.items()))
    return {
        "h_bucket": {tuple(sorted((*rest, ("le", le)))): n for le, n in counts.items()},
        "h_sum": {rest: sum_},
        "h_count": {rest: count},
    }


def merged(*many: dict[str, dict[Labels, float]]) -> Page:
    names = {name for one in many for name in one}
    return Page(
        samples={name: {k: v for one in many for k, v in one[name].items()} for name in names}
    )


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param({}, None, id="absent"),
        pytest.param({(): 0.0}, 0.0, id="zero-is-known"),
        pytest.param({(("e", "0"),): 1.0, (("e", "1"),): 2.5}, 3.5, id="ranks-are-summed"),
        pytest.param({(("e", "0"),): 1.0, (("e", "1"),): math.nan}, None, id="one-rank-nan"),
        pytest.param({(): math.inf}, None, id="infinite"),
        pytest.param({(): -1.0}, None, id="negative"),
        pytest.param({(): 1e29}, 1e29, id="large"),
        pytest.param({(): 1e308}, None, id="larger-than-anything"),
        pytest.param({(("e", str(n)),): 1e308 for n in range(3)}, None, id="sum-overflows"),
    ],
)
def test_a_total_is_known_only_if_all_its_parts_are(
    parts: dict[Labels, float], expected: float | None
) -> None:
    assert total(page(x=parts), "x") == expected


def test_a_histogram_keeps_its_own_bounds_in_rising_order() -> None:
    read = histogram(merged(buckets({"+Inf": 3, "1": 2, "0.5": 1}, sum_=2.5, count=3)), "h")

    assert read == HistogramReading(bounds=(0.5, 1.0), cumulative=(1.0, 2.0), sum=2.5, count=3.0)


def test_ranks_with_different_buckets_are_summed_at_the_bounds_they_share() -> None:
    one = buckets({"1": 1, "2": 2, "+Inf": 4}, sum_=9.0, count=4, engine="0")
    other = buckets({"1": 3, "5": 5, "+Inf": 5}, sum_=7.0, count=5, engine="1")
    read = histogram(merged(one, other), "h")

    assert read == HistogramReading(bounds=(1.0,), cumulative=(4.0,), sum=16.0, count=9.0)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(buckets({"1": 2, "+Inf": 1}, sum_=1, count=1), id="counts-fall"),
        pytest.param(buckets({"1": 1, "+Inf": 2}, sum_=1, count=3), id="inf-is-not-the-count"),
        pytest.param(buckets({"1": 1, "2": 2}, sum_=1, count=2), id="no-inf-bucket"),
        pytest.param(buckets({"1": 1, "+Inf": 2}, sum_=math.nan, count=2), id="sum-nan"),
        pytest.param(buckets({"1": math.nan, "+Inf": 2}, sum_=1, count=2), id="bucket-nan"),
        pytest.param(buckets({"one": 1, "+Inf": 2}, sum_=1, count=2), id="bound-no-number"),
        pytest.param(buckets({"1": 1, "1.0": 1, "+Inf": 2}, sum_=1, count=2), id="bound-twice"),
        pytest.param(buckets({"1": -1, "+Inf": 2}, sum_=1, count=2), id="negative-count"),
        pytest.param({"h_bucket": {}, "h_sum": {(): 1.0}, "h_count": {(): 1.0}}, id="no-buckets"),
    ],
)
def test_a_histogram_that_contradicts_itself_is_unknown(
    broken: dict[str, dict[Labels, float]],
) -> None:
    assert histogram(merged(broken), "h") is None


def test_a_rank_without_its_sum_makes_the_histogram_unknown() -> None:
    one = buckets({"+Inf": 4}, sum_=9.0, count=4, engine="0")
    other = buckets({"+Inf": 5}, sum_=7.0, count=5, engine="1")
    other["h_sum"] = {}

    assert histogram(merged(one, other), "h") is None


def test_a_negative_sum_is_read_as_it_is() -> None:
    read = histogram(merged(buckets({"1": 1, "+Inf": 1}, sum_=-1918.0, count=1)), "h")

    assert read is not None
    assert read.sum == -1918.0


@pytest.mark.parametrize("field", ["sum", "negative sum", "count"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_histogram_with_a_number_that_nothing_can_have_is_unknown(field: str, ranks: int) -> None:
    sum_ = {"sum": 1e308, "negative sum": -1e308}.get(field, 1.0)
    count = 1e308 if field == "count" else 3.0
    parts = [
        buckets({"1": count, "+Inf": count}, sum_=sum_, count=count, engine=str(rank))
        for rank in range(ranks)
    ]

    assert histogram(merged(*parts), "h") is None
