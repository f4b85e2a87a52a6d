import asyncio
import dataclasses

import pytest

from autoscaler.loop import Loop, changed_target
from autoscaler.types import Decision, Plan, Reason
from serving.errors import Unavailable
from serving.testing import PREFILL, make_observation, make_pool_state


class Beats:
    """A clock of a few scrapes, a source that always sees eight, an actuator that writes down."""

    def __init__(self, scrapes, *, fails=False):
        self.left = scrapes
        self.now_s = 0.0
        self.fails = fails
        self.asked = []

    async def next_scrape(self):
        if self.left == 0:
            return None
        self.left -= 1
        self.now_s += 5.0
        return self.now_s

    async def observe(self, now_s):
        return make_observation(
            at_s=now_s, pools=(make_pool_state(PREFILL, at_s=now_s, desired=8),)
        )

    async def scale(self, pool, replicas, *, epoch):
        self.asked.append((pool.name, replicas, epoch))
        if self.fails:
            raise Unavailable("nobody there")


class Wants:
    """A policy that always wants the same, and fails at the ticks it is told."""

    name = "wants"

    def __init__(self, replicas, *, broken=()):
        self.replicas = replicas
        self.broken = broken
        self.ticks = 0

    def start(self):
        return 0

    def tick(self, state, observations):
        self.ticks += 1
        if self.ticks in self.broken:
            raise ZeroDivisionError("nobody foresaw this")
        return state + 1, Plan(
            tier="demo",
            epoch=state + 1,
            at_s=observations[-1].at_s,
            policy="wants",
            decisions=(
                Decision(
                    pool=PREFILL,
                    replicas=self.replicas,
                    hold=False,
                    reason=Reason.DEMAND_ROSE,
                    words="",
                ),
            ),
        )


def run(beats, policy, **changes):
    order = []

    class Book:
        def record(self, observations, plan, state):
            order.append(("recorded", plan.epoch, len(beats.asked)))

    loop = Loop(
        policy=policy,
        clock=beats,
        source=beats,
        actuator=beats,
        scrapes_per_tick=3,
        recorder=Book(),
        on_tick=lambda plan, seen: order.append(("ticked", plan.epoch)),
    )
    state = asyncio.run(dataclasses.replace(loop, **changes).run(0))
    return state, order


def test_a_plan_is_in_the_book_before_anyone_acts_on_it():
    beats = Beats(3)
    _, order = run(beats, Wants(9))

    assert order == [("recorded", 1, 0), ("ticked", 1)]
    assert beats.asked == [("prefill", 9, 1)]


def test_an_unfinished_tick_is_dropped():
    state, order = run(Beats(8), Wants(9))

    assert state == 2
    assert [entry[1] for entry in order if entry[0] == "recorded"] == [1, 2]


def test_in_advise_mode_nothing_is_asked():
    beats = Beats(6)
    run(beats, Wants(9), acts=False)

    assert beats.asked == []


def test_a_target_that_does_not_answer_is_asked_again_at_the_next_tick():
    beats = Beats(6, fails=True)
    run(beats, Wants(9))

    assert beats.asked == [("prefill", 9, 1), ("prefill", 9, 2)]


def test_a_tick_that_fails_ends_a_backtest():
    with pytest.raises(ZeroDivisionError):
        run(Beats(6), Wants(9, broken=(1,)))


def test_a_tick_that_fails_is_dropped_where_the_loop_must_go_on():
    beats = Beats(9)
    state, _ = run(beats, Wants(9, broken=(2,)), survives=True)

    assert state == 2
    assert [asked[2] for asked in beats.asked] == [1, 2]


@pytest.mark.parametrize(
    ("wanted", "present", "asked"),
    [
        pytest.param(9, 8, 9, id="changed"),
        pytest.param(8, 8, None, id="applied-already"),
        pytest.param(None, 8, None, id="nothing-to-say"),
        pytest.param(9, None, None, id="present-size-unknown"),
    ],
)
def test_what_a_scale_target_is_asked_for(wanted, present, asked):
    decision = Decision(
        pool=PREFILL, replicas=wanted, hold=False, reason=Reason.DEMAND_ROSE, words=""
    )

    assert changed_target(decision, present) == asked
