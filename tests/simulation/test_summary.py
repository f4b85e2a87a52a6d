"""A run in a few numbers: requests and good requests by minute of arrival."""

from __future__ import annotations

from math import nan

import pytest

from serving.simulation.plan import PoolPlan, TierPlan
from serving.simulation.profile import load_profile
from serving.simulation.summary import distribution, outcome_of
from serving.simulation.tier import SimulatedTier
from serving.simulation.traffic import Request
from serving.types import Phase, Slo

SLO = Slo(ttft_s=2.0, itl_s=0.05, attainment_ratio=0.99)
PROFILE = load_profile("llama-3.1-8b-l40s")
PLAN = TierPlan(
    name="t",
    model="m",
    pools=(PoolPlan(name="all", phase=Phase.BOTH, variant="v", profile=PROFILE),),
)
# the last has to wait for a prompt that takes seconds
REQUESTS = [
    Request(1.0, 100, 5),
    Request(59.99, 100, 5),
    Request(185.0, 30_000, 5),
    Request(185.5, 30_000, 5),
]


def test_requests_are_counted_in_the_minute_of_their_arrival() -> None:
    tier = SimulatedTier(PLAN, REQUESTS, seed=1, start_s=1000.0)
    tier.advance(400.0)
    outcome = outcome_of(tier, slo=SLO)

    assert outcome["minutes"] == [[2, 2], [0, 0], [0, 0], [2, 0]]
    assert outcome["good_requests"] == 2


@pytest.mark.parametrize(
    ("missing", "p50", "p99", "most"),
    [
        (0, 50.0, 99.0, 100.0),
        (1, 50.0, 99.0, None),
        (2, 50.0, None, None),
        (50, 50.0, None, None),
        (51, None, None, None),
    ],
)
def test_a_request_without_a_first_token_is_slower_than_any(
    missing: int, p50: float | None, p99: float | None, most: float | None
) -> None:
    values = [float(n + 1) if n < 100 - missing else nan for n in range(100)]
    found = distribution(values, missing_is_slowest=True)

    assert found is not None
    assert (found["p50"], found["p99"], found["max"]) == (p50, p99, most)


def test_a_distribution_of_nothing_is_unknown() -> None:
    for missing_is_slowest in (True, False):
        assert distribution([nan, nan], missing_is_slowest=missing_is_slowest) is None
        assert distribution([], missing_is_slowest=missing_is_slowest) is None


def test_first_tokens_are_counted_of_what_arrived_and_gaps_of_what_finished() -> None:
    tier = SimulatedTier(PLAN, REQUESTS, seed=1)
    tier.advance(185.2)  # the third waits for its first token, the fourth is still to come
    outcome = outcome_of(tier)

    ttft_s, itl_s = outcome["ttft_s"], outcome["mean_itl_s"]
    assert isinstance(ttft_s, dict)
    assert isinstance(itl_s, dict)
    assert (outcome["arrived_requests"], outcome["finished_requests"]) == (3, 2)
    assert ttft_s["p50"] == max(tier.outcomes.ttft_s[:2])
    assert ttft_s["p99"] is None
    assert itl_s["max"] == max(tier.outcomes.mean_itl_s[:2])


def test_requests_still_to_come_are_in_no_minute() -> None:
    tier = SimulatedTier(PLAN, REQUESTS, seed=1)
    tier.advance(30.0)

    assert outcome_of(tier, slo=SLO)["minutes"] == [[1, 1]]
    assert "minutes" not in outcome_of(tier)
