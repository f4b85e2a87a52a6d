"""Where theory is exact: one server by Lindley's recursion, a tier by Little's law."""

import random
from dataclasses import replace

import pytest

from serving.simulation.profile import load_profile
from serving.simulation.tier import PoolPlan, SimulatedTier, TierPlan
from serving.simulation.traffic import Request
from serving.types import Phase

PROFILE = replace(load_profile("llama-3.1-8b-l40s"), prefill_s_per_token_squared=0.0)


def arrivals(count, per_s, seed):
    rng, now_s, times = random.Random(seed), 0.0, []
    for _ in range(count):
        now_s += rng.expovariate(per_s)
        times.append(now_s)
    return times


@pytest.mark.parametrize("load_ratio", [0.3, 0.8])
def test_one_server_waits_as_lindley_says(load_ratio):
    service_s = PROFILE.prefill_base_s + PROFILE.prefill_s_per_token * 1000
    times = arrivals(3000, load_ratio / service_s, seed=5)
    pool = PoolPlan(name="one", phase=Phase.BOTH, variant="v", profile=PROFILE, max_num_seqs=1)
    tier = SimulatedTier(
        TierPlan(name="t", model="m", pools=(pool,)), [Request(t, 1000, 1) for t in times], seed=0
    )
    while not tier.finished_replaying:
        tier.advance(60.0)

    wait_s = 0.0
    for index in range(1, len(times)):
        wait_s = max(0.0, wait_s + service_s - (times[index] - times[index - 1]))
        assert tier.outcomes.ttft_s[index] == pytest.approx(wait_s + service_s, abs=1e-6)


def test_requests_in_the_tier_are_rate_times_stay():
    rng = random.Random(2)
    trace = [
        Request(t, rng.randint(100, 2000), rng.randint(1, 200)) for t in arrivals(2000, 6.0, 3)
    ]
    pools = tuple(
        PoolPlan(name=p.value, phase=p, variant="v", profile=PROFILE, initial_replicas=2)
        for p in (Phase.PREFILL, Phase.DECODE)
    )
    tier = SimulatedTier(TierPlan(name="t", model="m", pools=pools), trace, seed=0)
    looks = seen = 0
    while not tier.finished_replaying:
        tier.advance(0.1)
        looks, seen = looks + 1, seen + tier.router.running

    stay_s = tier.router.request_duration.sum / tier.router.request_duration.count
    assert seen / looks == pytest.approx(len(trace) / tier.now_s * stay_s, rel=0.02)
