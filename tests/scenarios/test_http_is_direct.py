"""A run over real sockets decides, tick for tick, what a run inside one process decides."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Literal

import pytest

from autoscaler.codec import dump_plan, state_hash
from serving.schema.tier import Tier, demo_tier_path, load_tier
from serving.simulation.faults import Fault, FaultKind
from tests.scenarios.playing import (
    Played,
    aggregated,
    play_directly,
    play_over_http,
    quick_start,
    traffic,
    without_words,
)

END_S = 420.0
REQUESTS = traffic(
    [(90.0, 1.5, 1.5), (60.0, 1.5, 4.5), (60.0, 4.5, 4.5), (30.0, 4.5, 1.0), (180.0, 1.0, 1.0)],
    input_tokens=3000,
    output_tokens=250,
)


def demo_tier() -> Tier:
    return quick_start(load_tier(demo_tier_path()), seconds=40.0)


def both_ways(
    tier: Tier, router: Literal["epp", "vllm-router", "none"], *faults: tuple[float, Fault]
) -> tuple[Played, Played]:
    sizes = {pool.name: 1 for pool in tier.spec.pools}
    direct = play_directly(
        tier,
        REQUESTS,
        sizes,
        until_s=END_S,
        router=None if router == "none" else router,
        faults=faults,
    )
    http = asyncio.run(
        play_over_http(tier, REQUESTS, sizes, until_s=END_S, router=router, faults=faults)
    )
    return direct, http


@pytest.mark.parametrize("router", ["epp", "vllm-router", "none"])
@pytest.mark.parametrize("pools", ["disaggregated", "aggregated"])
def test_http_and_direct_agree_on_every_plan_and_outcome(
    pools: str, router: Literal["epp", "vllm-router", "none"]
) -> None:
    tier = aggregated(demo_tier(), most=4) if pools == "aggregated" else demo_tier()
    direct, http = both_ways(tier, router)

    assert len(direct.plans) == END_S // 15
    for ours, theirs, seen, seen_http in zip(
        direct.plans, http.plans, direct.observations, http.observations, strict=True
    ):
        assert seen_http == seen
        assert theirs.decisions == ours.decisions
        assert dump_plan(theirs) == dump_plan(ours)
    assert state_hash(http.state) == state_hash(direct.state)
    assert http.outcome == direct.outcome
    assert direct.outcome["good_requests"] > 0
    # what they agree on is worth something: replicas started, and some were given back
    for pool in direct.plans[0].decisions:
        sizes = direct.desired(pool.pool.name)
        assert max(sizes) > min(sizes)
        if pools == "disaggregated":
            assert sizes[0] < max(sizes) > sizes[-1]


def test_they_agree_under_faults_but_for_why_a_page_is_away() -> None:
    direct, http = both_ways(
        demo_tier(),
        "epp",
        (60.0, Fault(kind=FaultKind.SLOW_LINK, pool="decode", factor=0.2)),
        (120.0, Fault(kind=FaultKind.LATE_PAGE, pool="prefill", seconds=30.0)),
        (180.0, Fault(kind=FaultKind.CLEAR, pool="prefill")),
        (190.0, Fault(kind=FaultKind.FROZEN_PAGE, pool="decode")),
        (240.0, Fault(kind=FaultKind.CLEAR, pool="decode")),
        (245.0, Fault(kind=FaultKind.KILL, pool="decode", replicas="decode-0001")),
        (250.0, Fault(kind=FaultKind.MISSING_PAGE, pool="prefill", replicas="every_second")),
    )

    assert [asdict(without_words(plan)) for plan in http.plans] == [
        asdict(without_words(plan)) for plan in direct.plans
    ]
    assert http.outcome == direct.outcome
    for pool in ("prefill", "decode"):
        assert {d.coverage_ratio for d in direct.decisions(pool)} != {1.0}
