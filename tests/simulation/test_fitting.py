"""A profile that is fitted to the readings of a pair: known costs come back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import Misconfigured
from serving.simulation.fitting import FEWEST_ROWS, non_negative_fit
from serving.simulation.fitting_rows import Row, decode_rows, prefill_rows
from serving.types import HistogramReading, ReplicaReading


def histogram(count: float, total: float) -> HistogramReading:
    return HistogramReading(bounds=(1.0,), cumulative=(count,), sum=total, count=count)


def prefilled(
    at_s: float, *, count: int, seconds: float, tokens: int, steps: int
) -> ReplicaReading:
    return ReplicaReading(
        replica="p",
        at_s=at_s,
        prefill_time=histogram(count, seconds),
        request_prompt_tokens=histogram(count, tokens),
        step_tokens=histogram(steps, tokens),
    )


def row(*terms: float, costs: tuple[float, ...]) -> Row:
    seconds = sum(term * cost for term, cost in zip(terms, costs, strict=True))
    return Row(terms=terms, seconds=seconds, weight=terms[0])


@given(
    costs=st.tuples(*[st.floats(min_value=0.0, max_value=1.0)] * 2),
    sizes=st.lists(
        st.integers(min_value=1, max_value=1000), min_size=FEWEST_ROWS, max_size=20, unique=True
    ),
)
def test_costs_that_made_the_times_are_found_again(
    costs: tuple[float, float], sizes: list[int]
) -> None:
    fit = non_negative_fit([row(1.0, float(size), costs=costs) for size in sizes], what="x")

    assert fit.costs == pytest.approx(costs, abs=1e-9, rel=1e-6)


def test_no_cost_is_negative_where_that_would_fit_best() -> None:
    rows = [Row(terms=(1.0, float(n)), seconds=10.0 - n, weight=1.0) for n in range(1, 9)]

    fit = non_negative_fit(rows, what="x")

    assert fit.costs[1] == 0.0
    assert fit.costs[0] == pytest.approx(5.5)


def test_too_few_stretches_are_no_fit() -> None:
    with pytest.raises(Misconfigured, match="too short to fit"):
        non_negative_fit([row(1.0, costs=(1.0,))] * (FEWEST_ROWS - 1), what="x")


def test_a_stretch_of_prompts_alone_in_their_step_is_used() -> None:
    readings = [
        prefilled(0.0, count=3, seconds=1.0, tokens=900, steps=3),
        prefilled(1.0, count=5, seconds=1.5, tokens=1300, steps=5),
    ]

    (found,) = prefill_rows(readings, [100, 300, 50])

    assert found.terms == (2.0, 400.0, 100.0**2 + 300.0**2)
    assert found.seconds == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("prompts", "steps", "why"),
    [
        ([100, 300], 4, "two prompts shared a step"),
        ([100, 299], 5, "other lengths than the page counted: somebody overtook"),
        ([100], 5, "more were counted than were sent"),
    ],
)
def test_a_stretch_that_tells_no_single_prompt_is_left_out(
    prompts: list[int], steps: int, why: str
) -> None:
    readings = [
        prefilled(0.0, count=3, seconds=1.0, tokens=900, steps=3),
        prefilled(1.0, count=5, seconds=1.5, tokens=1300, steps=steps),
    ]

    assert prefill_rows(readings, prompts) == [], why


def decoded(at_s: float, *, gaps: int, seconds: float, steps: int) -> ReplicaReading:
    return ReplicaReading(
        replica="d",
        at_s=at_s,
        itl=histogram(gaps, seconds),
        step_tokens=histogram(steps, gaps),
        kv_used_ratio=0.5,
        kv_capacity_tokens=1000.0,
    )


def test_without_step_sums_batch_and_kv_are_the_means_of_the_page() -> None:
    readings = [
        decoded(0.0, gaps=100, seconds=1.0, steps=50),
        decoded(1.0, gaps=300, seconds=3.0, steps=100),
    ]

    (found,) = decode_rows(readings)

    assert found.terms == (200.0, 200.0 * 4.0, 200.0 * 500.0)


def test_a_replica_that_was_restarted_tells_nothing_of_that_stretch() -> None:
    readings = [
        decoded(0.0, gaps=300, seconds=3.0, steps=100),
        decoded(1.0, gaps=100, seconds=1.0, steps=50),
    ]

    assert decode_rows(readings) == []
