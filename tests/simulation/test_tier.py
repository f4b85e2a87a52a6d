"""A disaggregated tier: hand-over, leases, links, starts, drains and kills, in virtual time."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import Misconfigured
from serving.simulation.faults import Fault, FaultKind
from serving.simulation.profile import load_profile
from serving.simulation.tier import PoolPlan, SimulatedTier, TierPlan
from serving.simulation.traffic import Request
from serving.types import Phase, ReplicaState, StartStage

PROFILE = replace(
    load_profile("llama-3.1-8b-l40s"),
    prefill_base_s=0.010,
    prefill_s_per_token=0.001,
    prefill_s_per_token_squared=0.0,
    decode_base_s=0.020,
    decode_s_per_sequence=0.001,
    decode_s_per_kv_token=0.0,
    kv_bytes_per_token=1000,
    kv_link_bytes_per_s=1.0e6,  # a millisecond a token
    kv_link_latency_s=0.005,
)


def tier_of(requests, *, prefill=1, decode=1, policy="least_load", seed=0, start_s=0.0, **changes):
    decode_changes = changes.pop("decode_changes", {})
    pools = tuple(
        replace(
            PoolPlan(
                name=phase.value, phase=phase, variant="v", profile=PROFILE, initial_replicas=count
            ),
            **changes,
            **(decode_changes if phase is Phase.DECODE else {}),
        )
        for phase, count in ((Phase.PREFILL, prefill), (Phase.DECODE, decode))
    )
    plan = TierPlan(name="t", model="m", pools=pools, router_policy=policy)
    return SimulatedTier(plan, [Request(*r) for r in requests], seed=seed, start_s=start_s)


def played(tier, step_s=1.0):
    for _ in range(10_000):
        if tier.finished_replaying:
            return tier
        tier.advance(step_s)
    raise AssertionError("requests never ended")


def members(tier, pool):
    return [replica for replica in tier.replicas() if replica.pool == pool]


def page(tier, pool, index=0):
    return members(tier, pool)[index].telemetry


# ---- the way of a request


def test_the_user_waits_for_prefill_and_transfer_and_one_decode_step():
    tier = played(tier_of([(0.0, 100, 3)]))
    step_s = 0.020 + 0.001
    transfer_s = 0.100 + 0.005

    assert tier.outcomes.ttft_s[0] == pytest.approx(0.110 + transfer_s + step_s)
    assert tier.outcomes.mean_itl_s[0] == pytest.approx(step_s)
    assert page(tier, "prefill").ttft.sum == pytest.approx(0.110)
    decode = page(tier, "decode")
    assert decode.ttft.sum == pytest.approx(transfer_s + step_s)
    assert decode.queue_time.sum == pytest.approx(transfer_s)
    assert decode.prefill_time.sum == pytest.approx(step_s)


def test_each_side_counts_the_prompt_and_only_prefill_computes_it():
    tier = played(tier_of([(0.0, 100, 5), (0.3, 50, 1)]))
    prefill, decode = page(tier, "prefill"), page(tier, "decode")

    assert (prefill.prompt_tokens, decode.prompt_tokens) == (150, 150)
    assert (prefill.computed_prompt_tokens, prefill.transferred_prompt_tokens) == (150, 0)
    assert (decode.computed_prompt_tokens, decode.transferred_prompt_tokens) == (0, 150)
    assert (prefill.output_tokens, decode.output_tokens) == (2, 6)  # one each, thrown away
    assert (prefill.step_tokens.sum, decode.step_tokens.sum) == (152, 6)
    assert (prefill.itl.count, decode.itl.count) == (0, 4)
    assert (prefill.finished_length, decode.finished_stop) == (2, 2)
    assert prefill.external_prefix_cache_queries == 150
    assert prefill.external_prefix_cache_hits == 0
    assert decode.external_prefix_cache_hits == decode.prefix_cache_queries == 150
    assert decode.request_computed_tokens.sum == 150  # as vLLM counts, whatever its help text says
    assert (decode.kv_transfer_time.count, prefill.kv_transfer_time.count) == (2, 0)
    assert decode.kv_transfer_bytes.sum == 150_000
    assert decode.kv_transfer_time.sum == pytest.approx(0.150 + 2 * 0.005)


def test_prefill_keeps_kv_pinned_while_nothing_runs_and_decode_shows_deferred_requests():
    tier = tier_of([(0.0, 2000, 5), (0.0, 1000, 5)])
    tier.advance(3.5)  # prefilled at 2.01 and 3.02; the pulls end at 4.015 and 5.015
    prefill, decode = page(tier, "prefill"), page(tier, "decode")

    assert prefill.running_requests == prefill.waiting_capacity_requests == 0
    assert prefill.kv_used_ratio == pytest.approx((125 + 63) / (191792 // 16))
    assert (decode.running_requests, decode.waiting_deferred_requests) == (0, 2)
    assert (decode.kv_fetch_in_progress, decode.waiting_capacity_requests) == (2, 0)

    tier.advance(1.0)
    assert prefill.kv_used_ratio == pytest.approx(63 / (191792 // 16))
    played(tier)
    assert prefill.kv_used_ratio == 0.0
    assert decode.waiting_deferred_requests == decode.kv_fetch_in_progress == 0


def test_transfers_of_one_replica_follow_one_another_on_its_link():
    tier = played(tier_of([(0.0, 400, 1), (0.0, 40, 1)], decode=2))
    first, second = tier.outcomes.ttft_s

    # prompts end at 0.41 and 0.46; they go to two decode replicas, but leave by one link
    assert first == pytest.approx(0.410 + 0.405 + 0.021)
    assert second == pytest.approx(0.410 + 0.400 + 0.045 + 0.021)


def test_decode_without_blocks_keeps_requests_waiting_to_start_and_preempts():
    small = {"kv_capacity_tokens": 1280, "max_model_len": 1280}
    tier = tier_of([(0.01 * n, 200, 150) for n in range(24)], decode_changes=small)
    tier.advance(6.0)
    prefill, decode = page(tier, "prefill"), page(tier, "decode")

    assert decode.waiting_capacity_requests == decode.kv_fetch_waiting_to_start > 10
    assert decode.kv_used_ratio > 0.7
    assert prefill.running_requests == prefill.waiting_capacity_requests == 0
    assert prefill.kv_used_ratio > 0.0

    played(tier)
    assert decode.preemptions > 0
    assert decode.step_tokens.sum == decode.output_tokens


# ---- leases


def test_kv_that_nobody_pulls_in_time_is_freed_and_its_request_fails_with_odd_sums():
    tiny = {"kv_capacity_tokens": 640, "max_model_len": 640}
    tier = played(tier_of([(0.0, 500, 100), (0.0, 500, 100)], decode_changes=tiny, kv_lease_s=1.5))
    prefill, decode = page(tier, "prefill"), page(tier, "decode")

    assert (list(tier.outcomes.finished), list(tier.outcomes.failed)) == ([1, 0], [0, 1])
    assert prefill.kv_expired_requests == 1
    assert prefill.kv_used_ratio == 0.0
    assert (decode.finished_error, decode.kv_transfer_failures) == (1, 1)
    assert decode.kv_failed_notifications == 0
    assert decode.queue_time.sum < -1.0e6 + 60
    assert decode.prefill_time.sum > 1.0e6
    assert decode.inference_time.sum > 1.0e6
    assert decode.ttft.count == 2
    assert decode.request_prompt_tokens.sum == 1000
    assert decode.prompt_tokens == 500  # the failed one is in no token counter
    assert (tier.router.failed, tier.router.running, tier.router.decode_errors) == (1, 0, 1)


def test_a_pull_that_began_in_time_is_not_cut_off_by_the_lease():
    tier = played(tier_of([(0.0, 3000, 2)], kv_lease_s=1.0))  # the pull takes 3 s

    assert list(tier.outcomes.finished) == [1]
    assert page(tier, "prefill").kv_expired_requests == 0


# ---- scaling


def test_a_new_replica_goes_through_its_stages_and_gets_no_traffic_before_it_is_ready():
    tier = tier_of([(float(n), 50, 5) for n in range(100)], start_s=1000.0)
    assert {r.state for r in tier.replicas()} == {ReplicaState.READY}
    tier.scale("decode", 2)
    tier.scale("decode", 2)
    new = members(tier, "decode")[1]
    total_s = sum(PROFILE.start_cold_s.values())

    assert len(members(tier, "decode")) == 2
    assert (new.state, new.stage, new.telemetry) == (ReplicaState.STARTING, StartStage.NODE, None)
    counts = tier.pool_counts("decode")
    assert (counts.desired, counts.ready, counts.starting) == (2, 1, 1)
    tier.advance(61.5)
    assert new.stage is StartStage.IMAGE
    tier.advance(total_s - 61.5)
    assert (new.state, new.stage, new.ready_s) == (ReplicaState.READY, None, 1000.0 + total_s)
    assert new.telemetry.process_start_time_s == 1000.0 + 60 + 1 + 90
    assert new.telemetry.output_tokens == 0
    assert tier.ready_timeline["decode"] == [(1000.0, 1), (1000.0 + total_s, 2)]


def test_a_pool_with_a_start_time_of_its_own_starts_in_that_time():
    tier = tier_of([], start_s=0.0, decode_changes={"start_s": 60.0})
    tier.scale("decode", 2)
    tier.advance(59.9)
    assert tier.pool_counts("decode").starting == 1
    tier.advance(0.2)
    assert tier.pool_counts("decode").ready == 2


def test_scaling_down_cancels_the_youngest_start_first_and_then_drains():
    tier = tier_of([], decode=2)
    tier.scale("decode", 4)
    tier.advance(1.0)
    tier.scale("decode", 3)
    assert [r.name for r in members(tier, "decode")] == [
        "decode-0001",
        "decode-0002",
        "decode-0003",
    ]
    tier.scale("decode", 1)
    assert tier.pool_counts("decode").ready == 1
    tier.scale("decode", 2)
    names = [r.name for r in members(tier, "decode")]
    assert names[-1] == "decode-0005"  # no name comes twice


def test_a_start_on_a_node_that_was_just_left_is_warm():
    tier = tier_of([], decode=2)
    tier.scale("decode", 1)
    tier.scale("decode", 2)
    tier.advance(sum(PROFILE.start_warm_s.values()))
    assert tier.pool_counts("decode").ready == 2


def test_a_draining_prefill_replica_stays_until_its_kv_has_been_pulled():
    tier = tier_of([(0.0, 1000, 5)])
    tier.advance(1.5)  # prefilled at 1.01, pulled at 2.015
    tier.scale("prefill", 0)
    tier.advance(0.4)
    assert members(tier, "prefill")[0].state is ReplicaState.DRAINING
    assert tier.pool_counts("prefill").draining == 1
    tier.advance(0.2)

    assert members(tier, "prefill") == []
    assert list(played(tier).outcomes.finished) == [1]


def test_a_draining_decode_replica_waits_for_what_is_still_prefilled_for_it():
    tier = tier_of([(0.0, 1000, 5)])
    tier.advance(0.5)
    tier.scale("decode", 0)
    assert tier.pool_counts("decode").draining == 1
    played(tier)

    assert list(tier.outcomes.finished) == [1]
    assert members(tier, "decode") == []


def test_the_ready_replica_with_the_least_to_lose_drains():
    tier = tier_of([(0.0, 1000, 500)], decode=2)
    tier.advance(3.0)
    tier.scale("decode", 1)
    assert [r.name for r in members(tier, "decode")] == ["decode-0001"]


def test_without_a_ready_replica_the_router_holds_requests_in_order():
    tier = tier_of([(0.1, 50, 2), (0.2, 50, 2)], decode=0, decode_changes={"start_s": 10.0})
    tier.scale("decode", 1)
    tier.advance(5.0)
    assert (tier.router.held, tier.router.running, tier.router.requests) == (2, 2, 2)
    played(tier)

    assert tier.router.held == 0
    assert list(tier.outcomes.finished) == [1, 1]
    assert tier.outcomes.ttft_s[0] > 9.9


def test_replica_seconds_count_starting_and_draining_replicas():
    tier = tier_of([], prefill=2)
    tier.advance(10.0)
    tier.scale("prefill", 3)
    tier.advance(10.0)
    tier.scale("prefill", 1)  # the start is cancelled, an idle one is gone at once
    tier.advance(10.0)

    assert tier.replica_seconds["prefill"] == pytest.approx(2 * 10 + 3 * 10 + 1 * 10)
    assert tier.replica_seconds["decode"] == pytest.approx(30.0)


# ---- faults


def test_a_killed_decode_replica_loses_its_requests_and_is_replaced():
    tier = tier_of([(0.0, 100, 500), (0.1, 100, 500)], kv_lease_s=2.0)
    tier.advance(1.0)
    tier.inject(Fault(kind=FaultKind.KILL, pool="decode", replicas="decode-0001"))
    assert [r.name for r in members(tier, "decode")] == ["decode-0002"]
    assert members(tier, "decode")[0].state is ReplicaState.STARTING
    assert list(tier.outcomes.failed) == [1, 1]
    assert (tier.router.failed, tier.router.running) == (2, 0)
    assert tier.finished_replaying


def test_pulls_from_a_killed_prefill_replica_break_off():
    tier = tier_of([(0.0, 2000, 5), (0.0, 1000, 5)])
    tier.advance(3.5)
    tier.inject(Fault(kind=FaultKind.KILL, pool="prefill"))
    decode = page(tier, "decode")
    tier.advance(10.0)

    assert list(tier.outcomes.failed) == [1, 1]
    assert (decode.finished_error, decode.kv_transfer_failures) == (2, 4)
    assert decode.kv_failed_notifications == 2
    assert (decode.kv_used_ratio, decode.waiting_deferred_requests) == (0.0, 0)


def test_kv_meant_for_a_killed_decode_replica_stays_pinned_for_its_lease():
    tier = tier_of([(0.0, 1000, 5)], kv_lease_s=5.0)
    tier.advance(1.5)
    tier.inject(Fault(kind=FaultKind.KILL, pool="decode"))
    tier.advance(4.0)
    prefill = page(tier, "prefill")
    assert prefill.kv_used_ratio > 0.0
    tier.advance(1.0)

    assert (prefill.kv_used_ratio, prefill.kv_expired_requests) == (0.0, 1)


def test_a_link_at_a_tenth_takes_ten_times_as_long_until_it_is_cleared():
    tier = tier_of([(0.0, 100, 1), (10.0, 100, 1)])
    tier.inject(Fault(kind=FaultKind.SLOW_LINK, pool="decode", factor=0.1))
    tier.advance(5.0)
    tier.inject(Fault(kind=FaultKind.CLEAR, pool="decode"))
    played(tier)

    assert tier.outcomes.ttft_s[0] == pytest.approx(0.110 + 1.000 + 0.005 + 0.021)
    assert tier.outcomes.ttft_s[1] == pytest.approx(0.110 + 0.100 + 0.005 + 0.021)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        pytest.param(FaultKind.FROZEN_PAGE, "frozen", id="frozen"),
        pytest.param(FaultKind.MISSING_PAGE, "missing", id="missing"),
        pytest.param(FaultKind.LATE_PAGE, ("late", 20.0), id="late"),
    ],
)
def test_a_page_fault_strikes_every_second_replica_until_cleared(kind, expected):
    tier = tier_of([], decode=4)
    tier.inject(Fault(kind=kind, pool="decode", replicas="every_second", seconds=20.0))
    assert [r.page_fault for r in members(tier, "decode")] == [None, expected, None, expected]
    tier.inject(Fault(kind=FaultKind.CLEAR, pool="decode"))
    assert [r.page_fault for r in members(tier, "decode")] == [None] * 4


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda t: t.scale("none", 1), id="unknown-pool"),
        pytest.param(lambda t: t.scale("decode", -1), id="negative"),
        pytest.param(
            lambda t: t.inject(Fault(kind=FaultKind.KILL, pool="decode", replicas="x")),
            id="unknown-replica",
        ),
        pytest.param(lambda t: Fault(kind=FaultKind.SLOW_LINK, pool="p", factor=0.0), id="factor"),
        pytest.param(lambda t: Fault(kind=FaultKind.LATE_PAGE, pool="p", seconds=-1.0), id="age"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(act):
    with pytest.raises(Misconfigured):
        act(tier_of([]))


def test_a_request_longer_than_the_model_takes_is_refused_at_once():
    tier = played(tier_of([(0.0, 900, 200), (0.1, 100, 2)], max_model_len=1000))
    assert (list(tier.outcomes.failed), list(tier.outcomes.finished)) == ([1, 0], [0, 1])


# ---- the whole


TRACE = st.lists(
    st.tuples(st.floats(0.0, 8.0), st.integers(1, 300), st.integers(1, 80)), min_size=1, max_size=25
).map(sorted)
ORDERS = st.lists(
    st.one_of(
        st.tuples(st.just("scale"), st.sampled_from(["prefill", "decode"]), st.integers(0, 3)),
        st.tuples(st.just("kill"), st.sampled_from(["prefill", "decode"]), st.just(0)),
        st.tuples(st.just("slow"), st.sampled_from(["prefill", "decode"]), st.just(0)),
    ),
    max_size=8,
)


def give(tier, order):
    what, pool, replicas = order
    if what == "scale":
        tier.scale(pool, replicas)
    else:
        kind = FaultKind.KILL if what == "kill" else FaultKind.SLOW_LINK
        tier.inject(Fault(kind=kind, pool=pool, replicas="every_second"))


@settings(max_examples=60, deadline=None)
@given(
    trace=TRACE,
    orders=ORDERS,
    policy=st.sampled_from(["least_load", "round_robin", "power_of_two"]),
)
def test_whatever_is_done_to_it_every_request_ends_once_and_nothing_leaks(trace, orders, policy):
    tier = tier_of(
        trace,
        prefill=2,
        decode=2,
        policy=policy,
        start_s=50.0,
        kv_lease_s=1.0,
        max_model_len=512,
        kv_capacity_tokens=1024,
    )
    for order in orders:
        tier.advance(0.9)
        give(tier, order)
    tier.scale("prefill", 1)
    tier.scale("decode", 1)
    tier.advance(400.0)
    tier.advance(30.0)

    assert tier.finished_replaying
    ended = [a + b for a, b in zip(tier.outcomes.finished, tier.outcomes.failed, strict=True)]
    assert ended == [1] * len(trace)
    assert tier.router.requests == len(trace)
    assert tier.router.failed == sum(tier.outcomes.failed)
    assert not any(tier.router.active_prefill_tokens.values())
    assert not any(tier.router.active_decode_requests.values())
    assert not any(tier.router.pending_decode_requests.values())
    for replica in tier.replicas():
        assert (replica.load, replica.expected) == (0, 0)
        assert replica.engine.is_empty
        assert replica.engine.free_blocks == replica.engine.total_blocks
        assert replica.state is ReplicaState.READY


def summary(tier):
    return (
        list(map(repr, tier.outcomes.ttft_s)),
        list(map(repr, tier.outcomes.mean_itl_s)),
        [(r.name, r.engine.busy_s, r.telemetry.itl.counts) for r in tier.replicas()],
    )


@settings(max_examples=15, deadline=None)
@given(trace=TRACE, seed=st.integers(0, 5))
def test_the_same_seed_gives_the_same_numbers_however_time_is_cut(trace, seed):
    coarse = tier_of(trace, prefill=2, decode=3, policy="power_of_two", seed=seed)
    fine = tier_of(trace, prefill=2, decode=3, policy="power_of_two", seed=seed)
    coarse.advance(60.0)
    for _ in range(240):
        fine.advance(0.25)

    assert summary(coarse) == summary(fine)


def test_cpu_seconds_grow_with_time_alone_and_faster_under_load():
    tier = tier_of([(0.0, 1000, 5)])
    tier.advance(1.0)
    busy_s = page(tier, "prefill").process_cpu_s
    tier.advance(100.0)
    grown_s = page(tier, "prefill").process_cpu_s - busy_s

    assert busy_s == pytest.approx(0.9)
    assert 0.02 * 100 <= grown_s < 0.02 * 100 + 0.1


@pytest.mark.parametrize("policy", ["least_load", "round_robin", "power_of_two"])
def test_every_policy_spreads_requests_over_the_replicas(policy):
    tier = played(tier_of([(0.01 * n, 100, 50) for n in range(60)], decode=3, policy=policy))
    shares = [page(tier, "decode", i).finished_stop for i in range(3)]

    assert sum(shares) == 60
    assert min(shares) >= 12
