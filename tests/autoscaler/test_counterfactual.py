import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.capacity import new_decode_model, new_prefill_model
from autoscaler.counterfactual import at_size, counterfactuals
from autoscaler.needs import NEEDS, NeedInput
from autoscaler.testing import TIER, Load, decision_in, recorded_run
from autoscaler.types import Bottleneck, CapacityPrior, Demand, Need, PoolSettings, TierSettings
from serving.testing import DECODE, PREFILL
from serving.types import Phase, Slo

SLO = Slo(ttft_s=2.5, itl_s=0.05, attainment_ratio=0.99)
PRIOR = CapacityPrior(
    prefill_base_s=0.01,
    prefill_s_per_token=1e-4,
    decode_base_s=0.026,
    decode_s_per_sequence=8e-5,
    decode_s_per_kv_token=2.2e-7,
)
BOTH = dataclasses.replace(DECODE, name="all", phase=Phase.BOTH)


def question(pool, **changes: Any):
    settings = PoolSettings(pool=pool, min_replicas=1, max_replicas=100, prior=PRIOR)
    decode = dataclasses.replace(new_decode_model(PRIOR), kv_capacity_tokens=190_000.0)
    fields: dict[str, Any] = {
        "tier": TierSettings(name="demo", slo=SLO, pools=(settings,)),
        "pool": settings,
        "demand": Demand(input_tokens_mean=1000.0, output_tokens_mean=200.0),
        "prefill_tokens_per_s": 50_000.0,
        "output_tokens_per_s": 10_000.0,
        "prefill": new_prefill_model(PRIOR),
        "decode": decode,
        "waiting_prefill_requests": 0.0,
        "serving_replicas": 8,
        "lead_s": 120.0,
    }
    return NeedInput(**(fields | changes))


def at(seen, needs, replicas) -> Any:
    """A counterfactual, whose numbers a test knows to be there."""
    return at_size(seen, needs, replicas)


def needs_of(seen):
    return tuple(need for rule in NEEDS if (need := rule(seen)) is not None)


def test_prefill_of_a_known_size_is_as_busy_as_arithmetic_says():
    # steps of two prompts: 2000 tokens in 0.01 + 0.2 s = 9524 tokens/s a replica; 50,000 over
    # seven of them is 75 %
    found = at(question(PREFILL), (), 7)

    assert found.utilisation_ratio == pytest.approx(0.75)
    assert found.step_s is None
    assert found.holds_slo


def test_decode_of_a_known_size_has_the_gap_that_littles_law_says():
    # 1000 tokens/s a replica at contexts of 1100 tokens: each adds 8e-5 + 2.42e-4 = 3.22e-4 s to a
    # step, so 0.026 / (1 - 0.322) = 38.3 ms
    seen = question(DECODE)
    found = at(seen, needs_of(seen), 10)

    assert found.step_s == pytest.approx(0.038348, rel=1e-3)
    assert found.ttft_miss_ratio is None
    assert found.holds_slo


@pytest.mark.parametrize(
    ("pool", "replicas", "fault"),
    [
        pytest.param(PREFILL, 5, "of prompts would be late", id="prompts-late"),
        pytest.param(DECODE, 7, "on a hot replica the gap", id="gap-too-long"),
        pytest.param(DECODE, 3, "decode cannot keep up", id="no-gap-carries-it"),
    ],
)
def test_a_pool_that_is_too_small_says_what_would_break(pool, replicas, fault):
    seen = question(pool)
    found = at(seen, needs_of(seen), replicas)

    assert not found.holds_slo
    assert fault in found.words


def test_requests_that_do_not_fit_the_cache_break_the_slo():
    small = dataclasses.replace(question(DECODE).decode, kv_capacity_tokens=40_000.0)
    seen = question(DECODE, decode=small)
    found = at(seen, needs_of(seen), 10)

    assert not found.holds_slo
    assert "would not fit" in found.words


def test_a_queue_that_would_not_drain_breaks_the_slo():
    seen = question(PREFILL)
    queue = Need(
        bottleneck=Bottleneck.QUEUE_BACKLOG,
        replicas_exact=8.5,
        replicas=9,
        demand_per_s=1.0,
        replica_capacity_per_s=1.0,
    )

    assert not at(seen, (queue,), 8).holds_slo
    assert at(seen, (queue,), 9).holds_slo


def test_an_aggregated_pool_adds_up_its_two_kinds_of_work():
    seen, needs = question(BOTH), needs_of(question(BOTH))
    found = at(seen, needs, 20)
    alone = [at(question(pool), needs, 20) for pool in (PREFILL, DECODE)]

    assert found.utilisation_ratio == pytest.approx(sum(each.utilisation_ratio for each in alone))
    assert found.step_s == alone[1].step_s
    assert found.ttft_miss_ratio >= alone[0].ttft_miss_ratio


@pytest.mark.parametrize(
    ("pool", "changes"),
    [
        pytest.param(PREFILL, {"prefill_tokens_per_s": None}, id="prefill"),
        pytest.param(DECODE, {"output_tokens_per_s": None}, id="decode"),
        pytest.param(BOTH, {"output_tokens_per_s": None}, id="one-of-both"),
    ],
)
def test_an_unknown_demand_has_no_counterfactual(pool, changes):
    seen = question(pool, **changes)

    assert counterfactuals(seen, needs_of(seen), 8) == ()


def test_there_is_no_pool_of_no_replicas():
    seen = question(PREFILL, prefill_tokens_per_s=100.0)

    assert [c.replicas for c in counterfactuals(seen, needs_of(seen), 1)] == [1, 2]


def test_what_no_size_can_do_is_not_told_for_one_size():
    strict = dataclasses.replace(SLO, itl_s=0.01)
    seen = question(DECODE, tier=dataclasses.replace(question(DECODE).tier, slo=strict))

    assert counterfactuals(seen, needs_of(seen), 8) == ()


@given(st.floats(1.0, 1e6), st.floats(1.0, 1e6), st.integers(1, 200))
def test_more_replicas_are_never_worse(prefill, output, replicas):
    for pool in (PREFILL, DECODE, BOTH):
        seen = question(pool, prefill_tokens_per_s=prefill, output_tokens_per_s=output)
        needs = needs_of(seen)
        few, more = (at(seen, needs, n) for n in (replicas, replicas + 1))

        assert few is not None
        assert more.utilisation_ratio <= few.utilisation_ratio
        assert few.step_s is None or more.step_s <= few.step_s
        assert few.ttft_miss_ratio is None or more.ttft_miss_ratio <= few.ttft_miss_ratio + 1e-12
        assert more.holds_slo or not few.holds_slo


@given(st.floats(1.0, 1e6), st.floats(1.0, 1e6))
def test_the_size_that_is_needed_holds_the_slo(prefill, output):
    for pool in (PREFILL, DECODE):
        seen = question(pool, prefill_tokens_per_s=prefill, output_tokens_per_s=output)
        needs = needs_of(seen)
        replicas = max(need.replicas for need in needs)

        assert at(seen, needs, replicas).holds_slo


def test_every_decision_carries_its_neighbours_and_only_finite_numbers():
    for made in recorded_run([Load(scale=s) for s in (1.0, 1.0, 3.0, 0.1)]):
        for decision in made.plan.decisions:
            sizes = [c.replicas for c in decision.counterfactuals]

            assert sizes[1] == decision.replicas
            assert sizes == [sizes[1] - 1, sizes[1], sizes[1] + 1]
            for each in decision.counterfactuals:
                numbers = (each.utilisation_ratio, each.step_s, each.ttft_miss_ratio)
                assert all(n is None or math.isfinite(n) for n in numbers)


def test_a_pool_that_is_left_alone_has_no_counterfactual():
    (*_, last) = recorded_run([Load()] * 3 + [Load(lost=(PREFILL,))], settings=TIER)

    assert decision_in(last, "prefill").counterfactuals == ()
    assert decision_in(last, "decode").counterfactuals != ()
