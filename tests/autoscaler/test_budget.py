"""A budget that two pools share: fairly, and without handing one replica to and fro."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.budget import within_budget
from autoscaler.testing import TIER
from autoscaler.types import Bottleneck, Decision, Need, Reason, Step
from serving.testing import DECODE, PREFILL

POOLS = tuple(dataclasses.replace(pool, min_replicas=1) for pool in TIER.pools)


def wants(pool, *, has, wanted, exact):
    return Decision(
        pool=pool,
        replicas=wanted,
        hold=False,
        reason=Reason.DEMAND_ROSE,
        words="",
        needs=(
            Need(
                bottleneck=Bottleneck.COMPUTE,
                replicas_exact=exact,
                replicas=wanted,
                demand_per_s=exact,
                replica_capacity_per_s=1.0,
            ),
        ),
        steps=(
            Step(
                name="follow_need",
                before_replicas=has,
                after_replicas=wanted,
                reason=Reason.DEMAND_ROSE,
            ),
        ),
    )


def shared(budget, prefill, decode):
    tier = dataclasses.replace(TIER, accelerator_budget=budget, pools=POOLS)
    has_p, wants_p, needs_p = prefill
    has_d, wants_d, needs_d = decode
    return tuple(
        d.replicas
        for d in within_budget(
            (
                wants(PREFILL, has=has_p, wanted=wants_p, exact=needs_p),
                wants(DECODE, has=has_d, wanted=wants_d, exact=needs_d),
            ),
            tier,
        )
    )


@pytest.mark.parametrize(
    ("prefill", "decode", "given_replicas"),
    [
        pytest.param(
            (2, 2, 1.6), (1, 2, 1.9), (2, 1), id="both-short-by-like-shares-nothing-moves"
        ),
        pytest.param((1, 2, 1.6), (2, 2, 1.9), (1, 2), id="nor-the-other-way-round"),
        pytest.param((2, 2, 1.1), (1, 2, 1.9), (1, 2), id="the-needier-pool-gets-it"),
        pytest.param((2, 1, 0.6), (1, 2, 1.9), (1, 2), id="what-is-not-needed-moves"),
        pytest.param((1, 2, 1.6), (1, 2, 1.9), (1, 2), id="what-is-free-goes-to-the-needier"),
        pytest.param((1, 1, 0.6), (1, 1, 0.6), (1, 1), id="nothing-wanted-nothing-given"),
    ],
)
def test_a_replica_that_is_used_moves_only_where_that_is_worth_it(prefill, decode, given_replicas):
    assert shared(3, prefill, decode) == given_replicas


@given(st.floats(0.5, 4.0), st.floats(0.5, 4.0))
def test_the_same_needs_asked_again_move_nothing(prefill_need, decode_need):
    first = shared(3, (2, 2, prefill_need), (1, 2, decode_need))
    again = shared(3, (first[0], 2, prefill_need), (first[1], 2, decode_need))

    assert sum(first) <= 3
    assert again == first
