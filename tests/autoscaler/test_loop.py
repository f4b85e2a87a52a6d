import asyncio
import dataclasses

import pytest
from structlog.testing import capture_logs

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


class FailsAt(Beats):
    """A source that fails at some looks in a way that nobody foresaw."""

    def __init__(self, scrapes, times_s, error):
        super().__init__(scrapes)
        self.times_s = times_s
        self.error = error

    async def observe(self, now_s):
        if now_s in self.times_s:
            raise self.error
        return await super().observe(now_s)


UNFORESEEN = [OverflowError("too large"), RecursionError("too deep"), KeyError("now_s"), OSError(5)]


@pytest.mark.parametrize("error", UNFORESEEN, ids=lambda error: type(error).__name__)
def test_a_look_that_fails_saw_nothing_and_the_loop_goes_on(error):
    seen = []
    beats = FailsAt(9, (15.0, 20.0), error)
    state, _ = run(beats, Wants(9), survives=True, on_tick=lambda plan, looks: seen.append(looks))

    assert state == 3
    assert [look.at_s for looks in seen for look in looks] == [5.0 * n for n in range(1, 10)]
    assert type(error).__name__ in seen[0][-1].problems[0]
    assert (seen[0][-1].pools, seen[1][0].samples) == ((), ())
    assert [asked[2] for asked in beats.asked] == [2, 3]  # at the first, no size was known


@pytest.mark.parametrize("error", UNFORESEEN, ids=lambda error: type(error).__name__)
def test_a_look_that_fails_ends_a_backtest(error):
    with pytest.raises(type(error)):
        run(FailsAt(3, (5.0,), error), Wants(9))


class FullDisk:
    """A book that cannot be written at some calls."""

    def __init__(self, broken, error):
        self.broken = broken
        self.error = error
        self.calls = 0
        self.epochs = []

    def record(self, observations, plan, state):
        self.calls += 1
        if self.calls in self.broken:
            raise self.error
        self.epochs.append(plan.epoch)


@pytest.mark.parametrize("error", [OSError(28, "no space"), Unavailable("locked"), ValueError()])
def test_a_tick_that_is_not_in_the_book_is_neither_acted_on_nor_learned(error):
    beats, book, told = Beats(12), FullDisk((2, 3), error), []
    state, _ = run(
        beats,
        Wants(9),
        survives=True,
        recorder=book,
        on_tick=lambda plan, seen: told.append(plan.epoch),
    )

    assert state == 2
    assert book.epochs == told == [asked[2] for asked in beats.asked] == [1, 2]


def test_a_tick_that_cannot_be_recorded_ends_a_backtest():
    with pytest.raises(OSError, match="no space"):
        run(Beats(3), Wants(9), recorder=FullDisk((1,), OSError(28, "no space")))


def test_a_clock_that_goes_back_is_told_once_each_time():
    beats, times_s = Beats(0), iter([100.0, 105.0, 40.0, 45.0, 50.0, 55.0, 60.0, 60.0, 20.0, None])

    async def next_scrape():
        return next(times_s)

    beats.next_scrape = next_scrape
    with capture_logs() as lines:
        state, _ = run(beats, Wants(9), survives=True)

    assert state == 3
    assert [line["seconds"] for line in lines] == [65.0, 40.0]
    assert all("time service" in line["event"] for line in lines)


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
