import pytest

from autoscaler.policies import Capacity, RatePolicy, StaticSize
from autoscaler.types import Demand, PoolSettings, TierSettings
from serving.testing import DECODE, PREFILL, make_observation, make_pool_state, make_sample
from serving.types import Phase, PoolId, Slo

BOTH = PoolId(tier="demo", name="both", phase=Phase.BOTH, variant="l40s")
CAPACITY = Capacity(prefill_tokens_per_s=7_000.0, decode_tokens_per_s=1_200.0)
TIER = TierSettings(
    name="demo",
    slo=Slo(ttft_s=2.5, itl_s=0.05, attainment_ratio=0.99),
    pools=tuple(PoolSettings(pool=p, min_replicas=1, max_replicas=40) for p in (PREFILL, DECODE)),
)
DEMAND = Demand(prefill_tokens_per_s=56_000.0, output_tokens_per_s=10_800.0)  # 8 and 9 replicas


def policy(headroom_ratio=0.0, **more):
    return RatePolicy(
        TIER, name="last_value", capacity=CAPACITY, headroom_ratio=headroom_ratio, **more
    )


def settings(pool):
    return PoolSettings(pool=pool, min_replicas=1, max_replicas=40)


@pytest.mark.parametrize(
    ("pool", "headroom", "pinned", "demand", "replicas"),
    [
        pytest.param(PREFILL, 0.0, None, DEMAND, 8, id="own-rate"),
        pytest.param(DECODE, 0.2, None, DEMAND, 11, id="headroom"),  # 9 * 1.2 = 10.8
        pytest.param(PREFILL, 0.0, 0.5, DEMAND, 5, id="pinned-to-decode"),  # 9 * 0.5, rounded up
        pytest.param(BOTH, 0.0, None, DEMAND, 17, id="an-aggregated-pool-takes-both-kinds"),
        pytest.param(PREFILL, 0.0, None, Demand(output_tokens_per_s=1.0), None, id="input-unknown"),
        pytest.param(BOTH, 0.0, None, Demand(output_tokens_per_s=1.0), None, id="half-is-unknown"),
        pytest.param(DECODE, 0.0, None, Demand(prefill_tokens_per_s=1.0), None, id="out-unknown"),
    ],
)
def test_what_a_rate_policy_wants(pool, headroom, pinned, demand, replicas):
    found = policy(headroom, pinned_ratio=pinned).wanted(demand, settings(pool))

    assert found == replicas


def seen(at_s, *, prefill_rate, desired=8):
    return make_observation(
        make_sample(PREFILL, at_s=at_s, computed_prompt_tokens_per_s=prefill_rate),
        make_sample(DECODE, at_s=at_s, output_tokens_per_s=9_000.0),
        at_s=at_s,
        pools=tuple(make_pool_state(p, at_s=at_s, desired=desired) for p in (PREFILL, DECODE)),
    )


def play(rates):
    one = policy()
    state, found = one.start(), []
    for k, rate in enumerate(rates):
        state, plan = one.tick(state, [seen(15.0 * k + 15.0, prefill_rate=rate)])
        found.append(plan.decisions[0])
    return found


def test_a_rate_policy_gives_back_only_after_its_down_window():
    found = play([28_000.0] * 12)

    assert [d.replicas for d in found[:7]] == [8] * 7
    assert found[-1].replicas == 4


def test_a_rate_policy_holds_when_the_rate_is_unknown():
    found = play([28_000.0] * 4 + [None] * 12)

    assert found[-1].replicas == 8
    assert found[-1].hold


def test_a_static_size_is_the_same_at_every_tick():
    fixed = StaticSize(TIER, name="static", replicas={Phase.PREFILL: 5, Phase.DECODE: 6})
    _, plan = fixed.tick(fixed.start(), [seen(15.0, prefill_rate=None)])

    assert [d.replicas for d in plan.decisions] == [5, 6]
