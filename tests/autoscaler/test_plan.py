import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.budget import within_budget
from autoscaler.codec import dump_plan, dump_state, load_plan, load_state, state_hash
from autoscaler.testing import Load, observed
from autoscaler.tick import Phasewise, tick
from autoscaler.types import Decision, PoolSettings, Reason, TierSettings
from serving.testing import DECODE, PREFILL, make_observation, make_pool_state, make_sample
from serving.types import Slo

SLO = Slo(ttft_s=2.5, itl_s=0.05, attainment_ratio=0.99)
TIER = TierSettings(
    name="demo",
    slo=SLO,
    pools=tuple(PoolSettings(pool=p, min_replicas=1, max_replicas=50) for p in (PREFILL, DECODE)),
)


def seen(at_s, *, scale=1.0, prefill=8, decode=8, blind=()):
    """A tier under steady load without a front end."""
    load = Load(scale=scale, blind=blind, router=False)
    return observed(at_s, load, {PREFILL.name: prefill, DECODE.name: decode})


def run(ticks, tier=TIER, state=None, start_s=0.0, **changes):
    state = state or Phasewise(tier).start()
    made = None
    for k in range(ticks):
        observations = [seen(start_s + 15.0 * k + 5.0 * (j + 1), **changes) for j in range(3)]
        state, made = tick(state, observations, tier)
    return state, made


def sizes(plan):
    return {d.pool.name: d.replicas for d in plan.decisions}


def test_a_steady_load_is_settled_after_some_minutes_and_stays():
    state, plan = run(60)
    wanted = sizes(plan)

    for _ in range(20):
        state, plan = run(
            1, state=state, start_s=state.now_s, prefill=wanted["prefill"], decode=wanted["decode"]
        )
        assert sizes(plan) == wanted
        assert all(d.hold for d in plan.decisions)


def test_a_blind_pool_holds_while_the_other_is_still_steered():
    state, before = run(60)
    state, plan = run(20, state=state, start_s=state.now_s, scale=0.2, blind=(PREFILL,))

    found = {d.pool.name: d for d in plan.decisions}
    assert found["prefill"].replicas == 8
    assert found["prefill"].hold
    assert found["decode"].replicas < 8
    assert "not seen" in found["prefill"].words or "nothing known" in found["prefill"].words
    assert before is not None


def test_a_pool_whose_size_is_unknown_is_left_alone():
    state, _ = run(10)
    observation = dataclasses.replace(
        seen(state.now_s + 5.0),
        pools=(make_pool_state(PREFILL, at_s=state.now_s + 5.0, desired=None),),
    )

    _, plan = tick(state, [observation], TIER)

    assert [(d.replicas, d.reason) for d in plan.decisions] == [
        (None, Reason.POOL_STATE_UNKNOWN),
        (None, Reason.POOL_STATE_UNKNOWN),
    ]


def test_the_same_tick_gives_the_same_plan_and_state():
    one, two = run(30), run(30)

    assert one == two
    assert state_hash(one[0]) == state_hash(two[0])


def test_state_and_plan_come_back_from_bytes_exactly():
    state, plan = run(30)

    assert load_state(dump_state(state)) == state
    assert load_plan(dump_plan(plan)) == plan


def test_learned_state_stays_bounded_however_long_it_runs():
    short, _ = run(300)
    long, _ = run(900)

    assert len(dump_state(long)) < 1.1 * len(dump_state(short))


rates = st.one_of(
    st.none(),
    st.floats(0.0, 1e7),
    st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 1e308]),
)


@given(st.lists(st.tuples(rates, rates, rates, st.integers(0, 60)), min_size=3, max_size=9))
def test_whatever_comes_in_limits_hold_and_nothing_leaves_the_finite(rows):
    state = Phasewise(TIER).start()
    for k, (first, second, third, desired) in enumerate(rows):
        at_s = 5.0 * (k + 1)
        observation = make_observation(
            make_sample(
                PREFILL,
                at_s=at_s,
                computed_prompt_tokens_per_s=first,
                prefill_time_mean_s=second,
                steps_per_s=third,
                step_tokens_per_s=first,
                finished_requests_per_s=second,
                request_prompt_tokens_mean=third,
                waiting_requests=first,
                queue_time_mean_s=second,
            ),
            make_sample(
                DECODE,
                at_s=at_s,
                output_tokens_per_s=second,
                itl_mean_s=third,
                running_requests=first,
                kv_used_tokens=second,
                kv_capacity_tokens=third,
                hottest_kv_used_ratio=first,
                finished_requests_per_s=first,
            ),
            at_s=at_s,
            pools=tuple(make_pool_state(p, at_s=at_s, desired=desired) for p in (PREFILL, DECODE)),
        )
        state, plan = tick(state, [observation], TIER)
        for decision in plan.decisions:
            assert decision.replicas is not None
            assert 1 <= decision.replicas <= 50
        assert load_plan(dump_plan(plan)) == plan
        assert load_state(dump_state(state)) == state


@given(st.floats(1.0, 4.0))
def test_more_demand_never_means_fewer_replicas(factor):
    _, less = run(40)
    _, more = run(40, scale=factor)

    assert less is not None
    assert more is not None
    for one, two in zip(less.decisions, more.decisions, strict=True):
        assert two.wanted_replicas >= one.wanted_replicas


def decision(pool, replicas, exact=None):
    return Decision(pool=pool, replicas=replicas, hold=False, reason=Reason.DEMAND_ROSE, words="")


@pytest.mark.parametrize(
    ("budget", "wanted", "given_replicas"),
    [
        pytest.param(None, (9, 9), (9, 9), id="no-budget"),
        pytest.param(20, (9, 9), (9, 9), id="enough"),
        pytest.param(10, (9, 9), (5, 5), id="shared-evenly"),
        pytest.param(1, (9, 9), (1, 1), id="never-below-the-minimum"),
        pytest.param(10, (None, 9), (None, 9), id="an-unknown-pool-counts-nothing"),
    ],
)
def test_the_budget_bounds_all_pools_together(budget, wanted, given_replicas):
    tier = dataclasses.replace(TIER, accelerator_budget=budget)

    found = within_budget(
        tuple(decision(p, n) for p, n in zip((PREFILL, DECODE), wanted, strict=True)), tier
    )

    assert tuple(d.replicas for d in found) == given_replicas
