"""How long one tick's planning takes, as a curve over the number of tiers.

python bench/planning.py
"""

from __future__ import annotations

import statistics
import time

from autoscaler.codec import dump_state
from autoscaler.tick import Phasewise, tick
from autoscaler.types import PoolSettings, TierSettings
from serving.testing import DECODE, PREFILL, make_observation, make_pool_state, make_sample
from serving.types import Observation, Slo

TIER = TierSettings(
    name="bench",
    slo=Slo(ttft_s=2.5, itl_s=0.05, attainment_ratio=0.99),
    pools=tuple(PoolSettings(pool=p, min_replicas=1, max_replicas=50) for p in (PREFILL, DECODE)),
)
WARM_TICKS = 240  # an hour: every history is as long as it gets


def seen(at_s: float) -> Observation:
    """Steady load with a little swing, so that every rule has something to do."""
    swing = 1.0 + 0.1 * ((at_s / 5.0) % 7.0) / 7.0
    prefill = make_sample(
        PREFILL,
        at_s=at_s,
        computed_prompt_tokens_per_s=50_000.0 * swing,
        finished_requests_per_s=45.0,
        steps_per_s=38.0,
        step_tokens_per_s=50_000.0 * swing,
        prefill_time_mean_s=0.14,
        request_prompt_tokens_mean=1111.0,
        waiting_requests=0.0,
    )
    decode = make_sample(
        DECODE,
        at_s=at_s,
        output_tokens_per_s=10_000.0 * swing,
        finished_requests_per_s=45.0,
        itl_mean_s=0.04,
        running_requests=400.0,
        kv_used_tokens=480_000.0,
        kv_capacity_tokens=1_520_000.0,
        request_output_tokens_mean=222.0,
    )
    pools = tuple(make_pool_state(p, at_s=at_s, desired=8) for p in (PREFILL, DECODE))
    return make_observation(prefill, decode, at_s=at_s, pools=pools)


def main() -> None:
    state = Phasewise(TIER).start()
    for k in range(WARM_TICKS):
        state, _ = tick(state, [seen(15.0 * k + 5.0 * (j + 1)) for j in range(3)], TIER)
    now_s = 15.0 * WARM_TICKS
    observations = [seen(now_s + 5.0 * (j + 1)) for j in range(3)]
    print("| tiers | a tick of all | a tick of one |\n| --- | --- | --- |")
    for tiers in (1, 10, 50, 100):
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            for _ in range(tiers):
                tick(state, observations, TIER)
            times.append((time.perf_counter() - begin) * 1000.0)
        middle = statistics.median(times)
        print(f"| {tiers} | {middle:.1f} ms | {middle / tiers:.2f} ms |")
    print(f"learned state of a tier after an hour: {len(dump_state(state)) / 1024:.0f} KiB as JSON")


if __name__ == "__main__":
    main()
