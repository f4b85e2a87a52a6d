import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.capacity import new_decode_model, new_prefill_model
from autoscaler.needs import (
    NeedInput,
    decode_compute,
    decode_kv_cache,
    miss_ratio,
    prefill_backlog,
    prefill_compute,
)
from autoscaler.types import Bottleneck, CapacityPrior, Demand, PoolSettings, TierSettings
from serving.testing import DECODE, PREFILL
from serving.types import Slo

SLO = Slo(ttft_s=2.5, itl_s=0.05, attainment_ratio=0.99)
PRIOR = CapacityPrior(
    prefill_base_s=0.01,
    prefill_s_per_token=1e-4,
    decode_base_s=0.026,
    decode_s_per_sequence=8e-5,
    decode_s_per_kv_token=2.2e-7,
)


def question(pool, **changes):
    settings = PoolSettings(pool=pool, min_replicas=1, max_replicas=100, prior=PRIOR)
    tier = changes.pop("tier", TierSettings(name="demo", slo=SLO, pools=(settings,)))
    seen = NeedInput(
        tier=tier,
        pool=settings,
        demand=Demand(input_tokens_mean=1000.0, output_tokens_mean=200.0),
        prefill_tokens_per_s=50_000.0,
        output_tokens_per_s=8_000.0,
        prefill=new_prefill_model(PRIOR),
        decode=dataclasses.replace(
            new_decode_model(PRIOR), context_tokens_mean=1100.0, kv_capacity_tokens=190_000.0
        ),
        waiting_prefill_requests=0.0,
        serving_replicas=8,
        lead_s=120.0,
    )
    return dataclasses.replace(seen, **changes)


def test_prefill_is_sized_by_tokens_under_its_utilisation_cap():
    need = prefill_compute(question(PREFILL))

    # a step of two prompts: 2,000 tokens in 0.21 s = 9,524 tokens/s; 0.82 of it is 7,810
    assert need is not None
    assert need.bottleneck is Bottleneck.COMPUTE
    assert need.replicas_exact == pytest.approx(50_000.0 / 7_809.5, rel=1e-3)
    assert need.replicas == 7


def test_a_tight_ttft_needs_more_replicas_than_the_utilisation_cap():
    tight = TierSettings(
        name="demo", slo=dataclasses.replace(SLO, ttft_s=0.35), pools=question(PREFILL).tier.pools
    )

    need = prefill_compute(question(PREFILL, tier=tight))

    assert need is not None
    assert need.replicas > 7


def test_a_ttft_that_one_prompt_alone_exceeds_is_infeasible_and_says_so():
    hopeless = TierSettings(
        name="demo", slo=dataclasses.replace(SLO, ttft_s=0.1), pools=question(PREFILL).tier.pools
    )

    need = prefill_compute(question(PREFILL, tier=hopeless))

    assert need is not None
    assert not need.feasible


@pytest.mark.parametrize(
    ("waiting", "demand", "ordered"),
    [
        pytest.param(0.0, 50_000.0, False, id="nothing-waits"),
        pytest.param(300.0, 50_000.0, False, id="gone-before-help-could-come"),
        pytest.param(300.0, 80_000.0, True, id="grows-until-help-comes"),
        pytest.param(None, 80_000.0, False, id="queue-unknown"),
    ],
)
def test_only_a_backlog_that_outlasts_the_start_of_a_replica_orders_one(waiting, demand, ordered):
    seen = question(PREFILL, waiting_prefill_requests=waiting, prefill_tokens_per_s=demand)

    assert (prefill_backlog(seen) is not None) is ordered


def test_a_backlog_before_an_unknown_number_of_replicas_orders_nothing():
    seen = question(
        PREFILL,
        waiting_prefill_requests=300.0,
        prefill_tokens_per_s=80_000.0,
        serving_replicas=None,
    )

    assert prefill_backlog(seen) is None  # none serving would order the whole demand again


def test_decode_is_sized_by_the_batch_that_keeps_the_gap():
    need = decode_compute(question(DECODE))

    # 0.0485 - 0.026 = 22.5 ms of room at 0.322 ms a request, and one square root of it as spread:
    # b + sqrt(b) = 69.9 gives b = 62.0, a step of 45.97 ms and 1,349 tokens/s
    assert need is not None
    assert need.replica_capacity_per_s == pytest.approx(1_349.0, rel=2e-3)
    assert need.replicas == 6


def test_a_small_kv_cache_binds_before_the_gap_does():
    small = dataclasses.replace(question(DECODE).decode, kv_capacity_tokens=30_000.0)
    seen = question(DECODE, decode=small)

    compute, cache = decode_compute(seen), decode_kv_cache(seen)

    assert compute is not None
    assert cache is not None
    assert cache.replicas_exact > compute.replicas_exact
    assert cache.bottleneck is Bottleneck.KV_CACHE


@pytest.mark.parametrize("rule", [prefill_compute, decode_compute, decode_kv_cache])
def test_an_unknown_demand_has_no_need(rule):
    for pool in (PREFILL, DECODE):
        seen = question(pool, prefill_tokens_per_s=None, output_tokens_per_s=None)
        assert rule(seen) is None


@given(st.floats(1.0, 1e6), st.floats(1.0, 3.0))
def test_more_demand_never_needs_fewer_replicas(demand, factor):
    for rule, pool, field in (
        (prefill_compute, PREFILL, "prefill_tokens_per_s"),
        (decode_compute, DECODE, "output_tokens_per_s"),
        (decode_kv_cache, DECODE, "output_tokens_per_s"),
    ):
        less, more = (rule(question(pool, **{field: rate})) for rate in (demand, demand * factor))
        assert less is not None
        assert more is not None
        assert more.replicas >= less.replicas


@given(st.integers(1, 100), st.floats(0.0, 1.5), st.floats(0.01, 1.0), st.floats(0.1, 10.0))
def test_the_missed_share_is_a_ratio_and_grows_with_utilisation(k, rho, service_s, budget_s):
    one, two = (
        miss_ratio(
            replicas=k, utilisation=u, service_s=service_s, budget_s=budget_s, length_cv2=1.0
        )
        for u in (rho, rho * 1.1)
    )

    assert 0.0 <= one <= 1.0
    assert two >= one - 1e-12
