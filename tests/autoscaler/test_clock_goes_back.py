"""The clock is set back: what is known of later is dropped, and the rest is learned on."""

from __future__ import annotations

import pytest

from autoscaler.learn import learn
from autoscaler.state import LearnedState
from autoscaler.testing import TIER, Load, observed, recorded_run
from autoscaler.tick import tick
from serving.types import Observation

SIZES = {"prefill": 6, "decode": 6}  # what this load needs


def learned() -> LearnedState:
    """The state after half an hour of steady load."""
    states: list[LearnedState] = []
    recorded_run([Load()] * 120, sizes=SIZES, on_tick=lambda _, state: states.append(state))
    return states[-1]


def times_in(state: LearnedState) -> list[float]:
    points = (*state.prefill_rate.points, *state.output_rate.points)
    wants = [want.at_s for known in state.pools for want in known.wants]
    known = [k.last_known_s for k in state.pools if k.last_known_s is not None]
    return [*(b.at_s for b in state.bins), *(p.at_s for p in points), *wants, *known]


def looks(at_s: float, count: int = 3) -> tuple[Observation, ...]:
    return tuple(observed(at_s + 5.0 * k, Load(), SIZES) for k in range(count))


@pytest.mark.parametrize("back_s", [0.5, 5.0, 60.0, 900.0, 3600.0, 1e6])
def test_nothing_of_later_is_left_and_what_holds_at_any_time_is(back_s: float) -> None:
    before = learned()
    assert before.now_s is not None
    at_s = before.now_s - back_s

    blind = learn(before, Observation(at_s=at_s), TIER)
    after = learn(before, looks(at_s, 1)[0], TIER)

    assert max(times_in(blind), default=at_s) <= at_s
    assert max(times_in(after)) <= at_s
    assert after.now_s == at_s
    for was, now in zip(before.pools, blind.pools, strict=True):
        assert (now.prefill, now.decode) == (was.prefill, was.decode)
        assert now.lead.durations_s == was.lead.durations_s
        assert now.last_known_s is None  # not seen since: it does not shrink
    assert blind.prefill_rate.errors == before.prefill_rate.errors


@pytest.mark.parametrize("back_s", [5.0, 60.0, 3600.0])
def test_pools_hold_through_it_and_are_steered_on(back_s: float) -> None:
    state = learned()
    assert state.now_s is not None
    at_s = state.now_s - back_s
    sizes: list[int | None] = []
    reasons = []
    for index in range(12):
        state, plan = tick(state, looks(at_s + 15.0 * index), TIER)
        sizes += [decision.replicas for decision in plan.decisions]
        reasons.append(plan.decisions[0].reason)

    assert sizes == list(SIZES.values()) * 12
    assert state.bins[-1].at_s == state.now_s
    assert reasons[-1] == tick(learned(), looks(5000.0), TIER)[1].decisions[0].reason


def test_folding_the_same_observations_again_gives_the_same_state() -> None:
    before = learned()
    seen = (*looks(900.0), *looks(300.0), *looks(400.0))

    def fold(state: LearnedState) -> LearnedState:
        for one in seen:
            state = learn(state, one, TIER)
        return state

    assert fold(before) == fold(before)


def test_a_clock_that_goes_on_drops_nothing() -> None:
    before = learned()
    assert before.now_s is not None
    after = learn(before, looks(before.now_s, 1)[0], TIER)  # the same instant again

    assert after.prefill_rate.points[:-1] == before.prefill_rate.points
