"""A tick is measured from outside, and told once it is over."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from autoscaler.loop import Loop
from autoscaler.types import Plan
from phasewise.metering import Metering, TickDurations
from serving.errors import Unavailable
from serving.types import Observation, PoolId, Slo

SLO = Slo(ttft_s=2.0, itl_s=0.05, attainment_ratio=0.95)


class World:
    """A clock with three beats, a source and a policy that take their time, and a sink."""

    name = "slow"

    def __init__(self) -> None:
        self.now_s = 100.0
        self.beats = iter([5.0, 10.0, 15.0, 20.0, 25.0])
        self.told: list[tuple[Plan, Sequence[Observation], Any, TickDurations]] = []

    async def next_scrape(self) -> float | None:
        return next(self.beats, None)

    async def observe(self, now_s: float) -> Observation:
        self.now_s += 1.0
        return Observation(at_s=now_s)

    def start(self) -> int:
        return 0

    def tick(self, state: int, observations: Sequence[Observation]) -> tuple[int, Plan]:
        self.now_s += 0.25
        at_s = observations[-1].at_s
        return state + 1, Plan(tier="t", epoch=state, at_s=at_s, policy="slow", decisions=())

    def record(self, observations: Sequence[Observation], plan: Plan, state: Any) -> None:
        self.now_s += 2.0

    async def scale(self, pool: PoolId, replicas: int, *, epoch: int) -> None:
        raise Unavailable("nothing is scaled here")

    def observe_tick(
        self,
        plan: Plan,
        observations: Sequence[Observation],
        state: Any,
        durations: TickDurations,
        *,
        slo: Slo | None = None,
    ) -> None:
        assert slo == SLO
        self.told.append((plan, observations, state, durations))


async def test_each_part_of_a_tick_is_measured_and_told_with_the_state_after_it() -> None:
    world, started_s = World(), 1_000_000.0
    meter = Metering(
        [world], slo=SLO, unix_s=lambda: started_s + world.now_s, monotonic_s=lambda: world.now_s
    )
    loop = Loop(
        policy=meter.policy(world),
        clock=world,
        source=meter.source(world),
        actuator=world,
        scrapes_per_tick=2,
        recorder=world,
        on_tick=meter.on_tick,
    )
    await loop.run(meter.policy(world).start())

    assert [len(durations.observe) for *_, durations in world.told] == [2, 2]
    assert [state for _, _, state, _ in world.told] == [1, 2]
    first = world.told[0][3]
    assert [part.duration_s for part in first.observe] == [1.0, 1.0]
    assert first.observe[0].start_s == started_s + 100.0
    assert first.plan.duration_s == 0.25
    assert first.act.duration_s == 2.0
    assert first.act.start_s == pytest.approx(first.plan.end_s)


def test_without_a_plan_nothing_is_told() -> None:
    world, ticks = World(), count()
    meter = Metering([world], slo=SLO, unix_s=lambda: 0.0, monotonic_s=lambda: float(next(ticks)))
    plan = Plan(tier="t", epoch=1, at_s=5.0, policy="slow", decisions=())

    meter.on_tick(plan, (Observation(at_s=5.0),))

    assert world.told == []
