"""What came of a load, in numbers: who was good, what was waited, what is kept in a file."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import Misconfigured
from serving.load.outcomes import (
    Failure,
    RequestOutcome,
    attainment_ratio,
    json_lines,
    percentile,
    read_json_lines,
    totals,
)
from serving.types import Slo

SLO = Slo(ttft_s=1.0, itl_s=0.05, attainment_ratio=0.99)


def _request(**changed: Any) -> RequestOutcome:
    plain: dict[str, Any] = {
        "request_id": "run-1",
        "trace_id": "0" * 31 + "1",
        "input_tokens": 100,
        "output_tokens": 3,
        "scheduled_s": 10.0,
        "sent_s": 10.0,
        "ended_s": 11.0,
        "first_token_s": 10.5,
        "gaps_s": (0.02, 0.04),
        "counted_tokens": 3,
        "usage_prompt_tokens": 100,
        "usage_output_tokens": 3,
        "status": 200,
    }
    return RequestOutcome(**(plain | changed))


@pytest.mark.parametrize(
    ("changed", "good"),
    [
        pytest.param({}, True, id="both-met"),
        pytest.param({"first_token_s": 11.0}, True, id="just-in-time"),
        pytest.param({"first_token_s": 11.1}, False, id="late"),
        pytest.param({"gaps_s": (0.01, 0.1)}, False, id="slow-on-average"),
        pytest.param({"gaps_s": (0.0, 0.09)}, True, id="one-slow-gap-of-two"),
        pytest.param(
            {"gaps_s": (), "output_tokens": 1, "counted_tokens": 1, "usage_output_tokens": 1},
            True,
            id="one-token",
        ),
        pytest.param({"gaps_s": (), "counted_tokens": 1}, False, id="gaps-are-not-known"),
        pytest.param({"first_token_s": None, "gaps_s": ()}, False, id="no-token"),
        pytest.param({"failure": Failure.CUT_SHORT}, False, id="failed-after-a-good-start"),
        # the sender was late by 0.6 s: users would have waited from when it was due
        pytest.param({"sent_s": 10.6, "first_token_s": 11.2}, False, id="no-omission"),
    ],
)
def test_a_request_is_good_if_it_met_both_targets(changed: dict[str, Any], good: bool) -> None:
    assert _request(**changed).good(SLO) is good


def test_waits_count_from_when_it_was_due_and_from_the_sending() -> None:
    one = _request(sent_s=10.25)

    assert (one.lag_s, one.ttft_s, one.ttft_from_sending_s) == (0.25, 0.5, 0.25)
    assert one.mean_gap_s == pytest.approx(0.03)
    assert _request(gaps_s=()).mean_gap_s is None


def test_totals_are_of_what_was_served_and_failures_are_counted_by_kind() -> None:
    cut = _request(failure=Failure.CUT_SHORT, counted_tokens=2)
    refused = _request(failure=Failure.REFUSED, counted_tokens=0)
    sums = totals([_request(), _request(input_tokens=50), cut, cut, refused])

    assert (sums.requests, sums.served, sums.failed) == (5, 2, 3)
    assert (sums.prompt_tokens, sums.output_tokens, sums.output_tokens_of_failed) == (150, 6, 4)
    assert sums.failures == ((Failure.CUT_SHORT, 2), (Failure.REFUSED, 1))


def test_attainment_is_a_share_of_all_that_were_sent() -> None:
    late, failed = _request(first_token_s=12.0), _request(failure=Failure.TIMED_OUT)

    assert attainment_ratio([_request(), _request(), late, failed], SLO) == 0.5
    assert attainment_ratio([], SLO) is None


@pytest.mark.parametrize(
    ("ratio", "value"), [(0.0, 1.0), (0.25, 1.0), (0.26, 2.0), (0.5, 2.0), (0.99, 4.0), (1.0, 4.0)]
)
def test_a_percentile_is_a_value_that_was_seen(ratio: float, value: float) -> None:
    assert percentile([3.0, None, 1.0, 4.0, 2.0], ratio) == value


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_at_least_the_share_does_not_exceed_the_percentile(
    values: list[float], ratio: float
) -> None:
    found = percentile(values, ratio)

    assert found in values
    assert sum(value <= found for value in values) >= ratio * len(values) - 1e-9


def test_of_nothing_there_is_no_percentile_and_above_one_there_is_no_share() -> None:
    assert percentile([None], 0.5) is None
    with pytest.raises(ValueError, match="not a ratio"):
        percentile([1.0], 50)


def test_what_is_written_is_read_again() -> None:
    requests = (
        _request(),
        _request(failure=Failure.CONNECTION, words="cannot connect: “no”", status=None),
        _request(failure=Failure.BAD_ANSWER, words="half a character: \ud800"),
    )

    lines = list(json_lines(requests))

    assert all(line.isascii() and "\n" not in line for line in lines)
    assert read_json_lines(lines, where="file") == requests


@pytest.mark.parametrize("line", ["", "{}", "[]", '{"gaps_s": [], "failure": "odd"}', "nonsense"])
def test_a_line_that_is_no_request_is_named(line: str) -> None:
    good = next(iter(json_lines([_request()])))

    with pytest.raises(Misconfigured, match="file, line 2"):
        read_json_lines([good, line], where="file")
