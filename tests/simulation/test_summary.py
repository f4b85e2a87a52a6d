"""A run in a few numbers: requests and good requests by minute of arrival."""

from __future__ import annotations

from serving.simulation.plan import PoolPlan, TierPlan
from serving.simulation.profile import load_profile
from serving.simulation.summary import outcome_of
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


def test_requests_still_to_come_are_in_no_minute() -> None:
    tier = SimulatedTier(PLAN, REQUESTS, seed=1)
    tier.advance(30.0)

    assert outcome_of(tier, slo=SLO)["minutes"] == [[1, 1]]
    assert "minutes" not in outcome_of(tier)
