"""Falling load while one pool cannot be seen well: it holds and says why, the other is steered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache

import pytest

from autoscaler.types import Reason
from phasewise.scoring import actions_and_reversals, changes_of
from serving.schema.tier import Tier, demo_tier_path, load_tier
from serving.simulation.faults import Fault, FaultKind
from tests.scenarios.playing import (
    Played,
    play_directly,
    play_over_http,
    quick_start,
    traffic,
)

BEGINS_S, FALLS_S, ENDS_S, UNTIL_S = 345.0, 360.0, 645.0, 960.0
BEFORE = 4  # replicas of each pool that the load before the fall needs
AFTER = 2  # and after it
SIZES = {"prefill": BEFORE, "decode": BEFORE}
REQUESTS = traffic(
    [(FALLS_S, 8.5, 8.5), (60.0, 8.5, 8.5 / 3), (UNTIL_S - 420.0, 8.5 / 3, 8.5 / 3)],
    input_tokens=2100,
    output_tokens=280,
)
OTHER = {"prefill": "decode", "decode": "prefill"}

FAULTS: dict[str, Callable[[str], Fault]] = {
    "all pages missing": lambda pool: Fault(kind=FaultKind.MISSING_PAGE, pool=pool),
    "every second page missing": lambda pool: Fault(
        kind=FaultKind.MISSING_PAGE, pool=pool, replicas="every_second"
    ),
    "pages 30 s late": lambda pool: Fault(kind=FaultKind.LATE_PAGE, pool=pool, seconds=30.0),
    "frozen pages": lambda pool: Fault(kind=FaultKind.FROZEN_PAGE, pool=pool),
}


@lru_cache(maxsize=1)
def demo_tier() -> Tier:
    return quick_start(load_tier(demo_tier_path()), seconds=60.0)


def timed(fault: Fault) -> tuple[tuple[float, Fault], ...]:
    return (BEGINS_S, fault), (ENDS_S, Fault(kind=FaultKind.CLEAR, pool=fault.pool))


@lru_cache(maxsize=1)
def without_fault() -> Played:
    return play_directly(demo_tier(), REQUESTS, SIZES, until_s=UNTIL_S)


def holds_and_says_why(played: Played, pool: str) -> None:
    """What must be true of a run whose `pool` could not be seen well for five minutes."""
    other = OTHER[pool]
    calm = without_fault()

    # the fault matters: without it, this pool shrinks while it lasts
    assert calm.desired(pool, to_s=BEGINS_S)[-1] == BEFORE
    assert calm.desired(pool, to_s=ENDS_S)[-1] == AFTER

    held = played.decisions(pool, from_s=BEGINS_S, to_s=ENDS_S)
    assert len(held) == 20
    assert [d.replicas for d in held] == [BEFORE] * 20
    assert all(d.hold for d in held)
    reasons = {d.reason for d in held}
    assert reasons <= {
        Reason.WITHIN_NEED,
        Reason.COVERAGE_LOW,
        Reason.DEMAND_UNKNOWN,
        Reason.SCALE_DOWN_STABILIZED,
    }
    # from the second minute on, that it is not seen is what keeps it, and that is said in words
    for decision in held[4:]:
        assert decision.reason in (Reason.COVERAGE_LOW, Reason.DEMAND_UNKNOWN)
        assert "not seen for" in decision.words or "nothing known for" in decision.words
        assert decision.inputs_age_s is not None
        assert f"{decision.inputs_age_s:.0f} s" in decision.words
    assert all(f"{pool}-0" in d.words for d in held[4:] if d.reason is Reason.COVERAGE_LOW)

    # the other pool is steered meanwhile, as if nothing had happened
    assert played.desired(other) == calm.desired(other)
    assert played.desired(other, to_s=ENDS_S)[-1] == AFTER

    # and then: what counters catch up is no load, nothing grows, and in the end it shrinks
    after = played.decisions(pool, from_s=ENDS_S)
    sizes = played.desired(pool, from_s=ENDS_S)
    assert all(later <= earlier for earlier, later in zip([BEFORE, *sizes], sizes, strict=False))
    assert sizes[-1] == AFTER
    assert all(d.wanted_replicas is None or d.wanted_replicas <= AFTER + 1 for d in after)
    levels = [d.forecast.level_per_s for d in after if d.forecast is not None]
    calm_levels = [
        d.forecast.level_per_s
        for d in calm.decisions(pool, from_s=ENDS_S)
        if d.forecast is not None
    ]
    assert max(levels) <= 1.3 * max(calm_levels)


@pytest.mark.parametrize("pool", ["prefill", "decode"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_pool_that_is_not_seen_well_holds_and_the_other_is_steered(name: str, pool: str) -> None:
    played = play_directly(
        demo_tier(), REQUESTS, SIZES, until_s=UNTIL_S, faults=timed(FAULTS[name](pool))
    )

    holds_and_says_why(played, pool)


@pytest.mark.parametrize("pool", ["prefill", "decode"])
def test_without_a_front_end_too_the_blind_pool_holds(pool: str) -> None:
    played = play_directly(
        demo_tier(),
        REQUESTS,
        SIZES,
        until_s=UNTIL_S,
        router=None,
        faults=timed(Fault(kind=FaultKind.MISSING_PAGE, pool=pool)),
    )
    held = played.decisions(pool, from_s=BEGINS_S, to_s=ENDS_S)

    assert [d.replicas for d in held] == [BEFORE] * 20
    assert {d.reason for d in held[8:]} == {Reason.DEMAND_UNKNOWN}
    assert all("nothing known for" in d.words for d in held[8:])
    assert played.desired(OTHER[pool], to_s=ENDS_S)[-1] == AFTER
    sizes = played.desired(pool, from_s=ENDS_S)
    assert max(sizes) == BEFORE
    assert sizes[-1] == AFTER


def test_over_http_a_pool_whose_pages_are_gone_holds_too() -> None:
    missing = Fault(kind=FaultKind.MISSING_PAGE, pool="decode")
    played = asyncio.run(
        play_over_http(demo_tier(), REQUESTS, SIZES, until_s=UNTIL_S, faults=timed(missing))
    )

    holds_and_says_why(played, "decode")


@pytest.mark.parametrize("pool", ["prefill", "decode"])
def test_a_killed_replica_is_replaced_and_the_plan_does_not_flap(pool: str) -> None:
    killed = Fault(kind=FaultKind.KILL, pool=pool, replicas=f"{pool}-0002")
    played = play_directly(demo_tier(), REQUESTS, SIZES, until_s=FALLS_S, faults=[(150.0, killed)])
    counted = [
        (state.ready_replicas, state.starting_replicas)
        for seen in played.observations
        for state in seen[-1].pools
        if state.pool.name == pool
    ]

    assert (BEFORE - 1, 1) in counted
    assert counted[-1] == (played.desired(pool)[-1], 0)
    changes = [
        change
        for plan, seen in zip(played.plans, played.observations, strict=True)
        for change in changes_of(
            plan, {state.pool.name: state.desired_replicas for state in seen[-1].pools}
        )
    ]
    assert actions_and_reversals(changes)[1] == 0
    assert all(abs(number - BEFORE) <= 1 for name in SIZES for number in played.desired(name))
    assert played.outcome["failed_requests"] > 0


def test_a_slow_link_neither_breaks_the_loop_nor_makes_the_pools_grow_without_end() -> None:
    slow = Fault(kind=FaultKind.SLOW_LINK, pool="decode", factor=0.1)
    mended = Fault(kind=FaultKind.CLEAR, pool="decode")
    played = play_directly(
        demo_tier(), REQUESTS, SIZES, until_s=UNTIL_S, faults=[(120.0, slow), (300.0, mended)]
    )

    assert len(played.plans) == UNTIL_S // 15
    assert all(d.replicas is not None for name in SIZES for d in played.decisions(name))
    assert all(number <= 2 * BEFORE for name in SIZES for number in played.desired(name))
    assert all(played.desired(name)[-1] == AFTER for name in SIZES)
    assert played.outcome["finished_requests"] > 0.9 * played.outcome["arrived_requests"]


def test_every_fault_at_once_never_ends_the_loop_or_shrinks_a_pool() -> None:
    faults = [
        (FALLS_S, Fault(kind=FaultKind.MISSING_PAGE, pool="prefill")),
        (FALLS_S, Fault(kind=FaultKind.FROZEN_PAGE, pool="decode")),
        (FALLS_S + 5, Fault(kind=FaultKind.SLOW_LINK, pool="decode", factor=0.1)),
        (FALLS_S + 60, Fault(kind=FaultKind.KILL, pool="prefill", replicas="prefill-0001")),
        (FALLS_S + 60, Fault(kind=FaultKind.KILL, pool="decode", replicas="decode-0001")),
    ]
    played = play_directly(demo_tier(), REQUESTS, SIZES, until_s=ENDS_S, faults=faults)

    assert len(played.plans) == ENDS_S // 15
    for pool in SIZES:
        assert min(played.desired(pool)) == BEFORE
        newest = played.observations[-1][-1]
        (state,) = (s for s in newest.pools if s.pool.name == pool)
        assert state.ready_replicas == state.desired_replicas


@pytest.mark.parametrize("pool", ["prefill", "decode"])
@pytest.mark.parametrize(("begins_s", "ends_s"), [(300.0, 405.0), (330.0, 420.0), (345.0, 480.0)])
def test_pages_that_were_late_while_the_load_fell_are_believed_again(
    pool: str, begins_s: float, ends_s: float
) -> None:
    """The jump to the present is then smaller than the lag would be at the load before."""
    falls_at_once = traffic(
        [(FALLS_S, 8.5, 8.5), (UNTIL_S - FALLS_S, 8.5 / 3, 8.5 / 3)],
        input_tokens=2100,
        output_tokens=280,
    )
    late = Fault(kind=FaultKind.LATE_PAGE, pool=pool, seconds=30.0)
    played = play_directly(
        demo_tier(),
        falls_at_once,
        SIZES,
        until_s=ends_s + 330.0,
        faults=[(begins_s, late), (ends_s, Fault(kind=FaultKind.CLEAR, pool=pool))],
    )

    assert set(played.desired(pool, from_s=begins_s, to_s=ends_s)) == {BEFORE}
    assert max(played.desired(pool, from_s=ends_s)) == BEFORE
    assert played.desired(pool)[-1] == AFTER
