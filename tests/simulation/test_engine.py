"""One replica, iteration by iteration: times by hand, blocks by counting, order by rule."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.simulation.profile import load_profile
from serving.simulation.tier import PoolPlan, SimulatedTier, TierPlan
from serving.simulation.traffic import Request
from serving.types import Phase

PROFILE = replace(
    load_profile("llama-3.1-8b-l40s"),
    prefill_base_s=0.010,
    prefill_s_per_token=0.001,
    prefill_s_per_token_squared=1.0e-6,
    decode_base_s=0.020,
    decode_s_per_sequence=0.001,
    decode_s_per_kv_token=1.0e-5,
)


def aggregated(requests, **changes):
    pool = PoolPlan(name="all", phase=Phase.BOTH, variant="v", profile=PROFILE)
    plan = TierPlan(name="t", model="m", pools=(replace(pool, **changes),))
    return SimulatedTier(plan, [Request(*r) for r in requests], seed=0)


def small(blocks, longest):
    """Engine arguments for a KV cache of so many blocks of 4 tokens."""
    return {
        "kv_capacity_tokens": blocks * 4,
        "block_size_tokens": 4,
        "max_model_len": longest,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
    }


def played(tier, step_s=1.0):
    for _ in range(10_000):
        if tier.finished_replaying:
            return tier
        tier.advance(step_s)
    raise AssertionError("requests never ended")


def blocks_by_counting(engine):
    """Blocks that requests hold, found by walking over all of them."""
    size, coming = engine.block_size, 1 if engine.running_step else 0
    whole = [*engine.prefilling, *engine.pulled, *engine.pulling.values(), *engine.pinned.values()]
    whole += [s for s in engine.firsts if s not in engine.prefilling]
    tokens = [s.context_tokens for s in whole]
    tokens += [
        s.context_tokens + engine.step + coming - s.joined_step
        for s in engine.batch.members.values()
    ]
    return sum(-(-t // size) for t in tokens)


def test_one_request_takes_its_prompt_and_one_step_a_further_token():
    tier = played(aggregated([(0.0, 100, 3)]))
    prompt_s = 0.010 + 0.001 * 100 + 1.0e-6 * 100**2
    second_s = 0.020 + 0.001 + 1.0e-5 * 100
    third_s = 0.020 + 0.001 + 1.0e-5 * 101

    assert tier.outcomes.ttft_s[0] == pytest.approx(prompt_s)
    assert tier.outcomes.mean_itl_s[0] == pytest.approx((second_s + third_s) / 2)
    telemetry = tier.replicas()[0].telemetry
    assert telemetry.itl.sum == pytest.approx(second_s + third_s)
    assert (telemetry.itl.count, telemetry.output_tokens) == (2, 3)
    assert telemetry.step_tokens.sum == 100 + 3


def test_a_prompt_over_the_budget_is_read_in_chunks_and_costs_the_same_attention():
    tier = played(aggregated([(0.0, 250, 1)], max_num_batched_tokens=100, max_num_seqs=8))

    # three iterations: three bases, 250 tokens, 250² pairs however they are cut
    assert tier.outcomes.ttft_s[0] == pytest.approx(3 * 0.010 + 0.250 + 1.0e-6 * 250**2)
    assert tier.replicas()[0].telemetry.step_tokens.count == 3


def test_a_prompt_and_a_decoding_request_share_an_iteration_with_the_larger_base():
    tier = aggregated([(0.0, 100, 50), (0.125, 40, 1)])
    tier.advance(0.13)  # the first prompt ended at 0.12; the second arrives during a decode step
    played(tier)

    first_decode_end_s = 0.120 + 0.020 + 0.001 + 1.0e-5 * 100
    mixed_s = 0.020 + 0.001 * 40 + 1.0e-6 * 40**2 + 0.001 + 1.0e-5 * 101
    assert tier.outcomes.ttft_s[1] == pytest.approx(first_decode_end_s + mixed_s - 0.125)


def test_no_request_overtakes_one_that_lacks_blocks():
    # 10 blocks: the first holds 7, the second would need 7, the third only 1
    tier = played(aggregated([(0.0, 26, 2), (0.001, 26, 2), (0.002, 3, 2)], **small(10, 30)))
    ends = [at + ttft for at, ttft in zip((0.0, 0.001, 0.002), tier.outcomes.ttft_s, strict=True)]

    assert ends[0] < ends[1] <= ends[2]


def test_as_many_requests_run_as_allowed_and_the_rest_is_seen_waiting():
    tier = aggregated([(0.0, 10, 100)] * 5, max_num_seqs=2)
    tier.advance(0.2)
    telemetry = tier.replicas()[0].telemetry

    assert telemetry.running_requests == 2
    assert telemetry.waiting_capacity_requests == 3
    assert telemetry.waiting_deferred_requests == 0


def test_decode_that_runs_out_of_blocks_preempts_the_youngest_and_computes_it_again():
    tier = aggregated([(0.0, 12, 20), (0.001, 12, 20)], **small(12, 40))
    played(tier)
    telemetry = tier.replicas()[0].telemetry

    assert telemetry.preemptions == 1
    assert telemetry.request_preemptions.sum == 1
    assert list(tier.outcomes.finished) == [1, 1]
    assert telemetry.output_tokens == 40
    assert telemetry.prompt_tokens == 24  # what is computed again is not counted again
    assert telemetry.step_tokens.sum == 24 + 40
    assert tier.outcomes.mean_itl_s[0] < tier.outcomes.mean_itl_s[1]
    assert telemetry.itl.count == 2 * 19


requests_strategy = st.lists(
    st.tuples(st.floats(0.0, 3.0), st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=15
).map(sorted)


@settings(max_examples=60, deadline=None)
@given(requests=requests_strategy, blocks=st.integers(20, 60))
def test_blocks_and_requests_are_neither_lost_nor_doubled(requests, blocks):
    tier = aggregated(requests, **small(blocks, 80))
    engine = tier.replicas()[0].engine
    for _ in range(3000):
        if tier.finished_replaying:
            break
        tier.advance(0.05)

        assert engine.free_blocks == engine.total_blocks - blocks_by_counting(engine)
        assert engine.free_blocks >= 0
        assert engine.batch.size + len(engine.prefilling) <= 8
    telemetry = tier.replicas()[0].telemetry
    assert list(tier.outcomes.finished) == [1] * len(requests)
    assert engine.free_blocks == engine.total_blocks
    assert telemetry.output_tokens == sum(r[2] for r in requests)
    assert telemetry.prompt_tokens == sum(r[1] for r in requests)
    assert telemetry.itl.count == sum(r[2] - 1 for r in requests)
    assert telemetry.finished_stop == len(requests)
    assert engine.busy_s <= tier.now_s + 1e-9


@settings(max_examples=30, deadline=None)
@given(requests=requests_strategy)
def test_gaps_add_up_to_the_time_between_first_and_last_token(requests):
    tier = played(aggregated(requests, **small(30, 80)))
    telemetry = tier.replicas()[0].telemetry

    assert telemetry.itl.sum == pytest.approx(telemetry.decode_time.sum, abs=1e-6)
    assert telemetry.e2e.sum == pytest.approx(
        telemetry.queue_time.sum + telemetry.inference_time.sum, abs=1e-6
    )
    assert tier.router.itl.sum == pytest.approx(telemetry.itl.sum)
    assert tier.router.ttft.sum == pytest.approx(telemetry.ttft.sum)
