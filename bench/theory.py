"""Hold the simulator against theory where theory is exact, and exit 1 if it is off by over 2 %.

    python bench/theory.py

M/D/1: Poisson arrivals at an aggregated replica that takes one request at a time, all of one
length and one token to answer, so the service time S is one number. The mean wait must be
rho S / (2 (1 - rho)) (Pollaczek and Khinchine, with no variance of service).
D/D/1 by Lindley's recursion: the same arrivals one by one, which leaves no chance to hide behind.
Little: the mean number of requests in a disaggregated tier, seen by looking at it every quarter of
a second, must be arrivals per second times mean time in the tier.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from itertools import pairwise

from serving.simulation.profile import load_profile
from serving.simulation.tier import PoolPlan, SimulatedTier, TierPlan
from serving.simulation.traffic import Request
from serving.types import Phase

TOLERANCE_RATIO = 0.02
PROMPT_TOKENS = 2000
PROFILE = replace(load_profile("llama-3.1-8b-l40s"), prefill_s_per_token_squared=0.0)


def poisson(requests: int, *, per_s: float, seed: int) -> list[float]:
    rng = random.Random(seed)
    now_s, arrivals = 0.0, []
    for _ in range(requests):
        now_s += rng.expovariate(per_s)
        arrivals.append(now_s)
    return arrivals


def play(plan: TierPlan, requests: list[Request]) -> SimulatedTier:
    tier = SimulatedTier(plan, requests, seed=1)
    while not tier.finished_replaying:
        tier.advance(60.0)
    return tier


def single_server_waits(load_ratio: float, requests: int) -> tuple[float, float, float]:
    """Mean waits in seconds: simulated, by Lindley's recursion, by theory."""
    service_s = PROFILE.prefill_base_s + PROFILE.prefill_s_per_token * PROMPT_TOKENS
    arrivals = poisson(requests, per_s=load_ratio / service_s, seed=7)
    pool = PoolPlan(name="one", phase=Phase.BOTH, variant="l40s", profile=PROFILE, max_num_seqs=1)
    tier = play(
        TierPlan(name="theory", model="m", pools=(pool,)),
        [Request(at_s, PROMPT_TOKENS, 1) for at_s in arrivals],
    )
    telemetry = tier.replicas()[0].telemetry
    assert telemetry is not None
    wait_s, total_s = 0.0, 0.0
    for before_s, at_s in pairwise(arrivals):
        wait_s = max(0.0, wait_s + service_s - (at_s - before_s))
        total_s += wait_s
    theory_s = load_ratio * service_s / (2.0 * (1.0 - load_ratio))
    return telemetry.queue_time.sum / telemetry.queue_time.count, total_s / requests, theory_s


def requests_in_tier(requests: int) -> tuple[float, float]:
    """Mean requests in a disaggregated tier: counted by looking, and by Little's law."""
    rng = random.Random(3)
    trace = [
        Request(at_s, rng.randint(100, 2000), rng.randint(1, 300))
        for at_s in poisson(requests, per_s=8.0, seed=11)
    ]
    pools = tuple(
        PoolPlan(name=phase.value, phase=phase, variant="l40s", profile=PROFILE, initial_replicas=2)
        for phase in (Phase.PREFILL, Phase.DECODE)
    )
    tier = SimulatedTier(TierPlan(name="theory", model="m", pools=pools), trace, seed=1)
    looks, seen = 0, 0
    while not tier.finished_replaying:
        tier.advance(0.25)
        looks += 1
        seen += tier.router.running
    stay_s = tier.router.request_duration.sum / tier.router.request_duration.count
    return seen / looks, requests / tier.now_s * stay_s


def main() -> int:
    worst = 0.0
    print(f"{'case':<34}{'simulated':>12}{'expected':>12}{'off':>9}")

    def row(case: str, simulated: float, expected: float) -> None:
        nonlocal worst
        off = simulated / expected - 1.0
        worst = max(worst, abs(off))
        print(f"{case:<34}{simulated:>12.5f}{expected:>12.5f}{off:>+9.2%}")

    for load_ratio, requests in ((0.3, 100_000), (0.5, 200_000), (0.7, 300_000), (0.8, 400_000)):
        simulated_s, lindley_s, theory_s = single_server_waits(load_ratio, requests)
        row(f"M/D/1 mean wait, s, load {load_ratio}", simulated_s, theory_s)
        row("  the same arrivals, Lindley", simulated_s, lindley_s)
    row("Little: requests in the tier", *requests_in_tier(40_000))
    print(f"largest deviation {worst:.2%}, allowed {TOLERANCE_RATIO:.0%}")
    return 0 if worst <= TOLERANCE_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
