"""What each part of a tick takes, measured at the edge of the loop, and given to whoever tells it.

The loop knows nothing of it: its source and its policy are wrapped, and its `on_tick` ends a tick.
Whoever tells it (a metrics page, OTLP) is a `Sink`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autoscaler.ports import Source
from autoscaler.tick import Policy
from autoscaler.types import Plan
from serving.types import Observation, Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a tick: Unix time of its start and its real duration, in seconds."""

    start_s: float
    duration_s: float

    @property
    def end_s(self) -> float:
        """When it was over."""
        return self.start_s + self.duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TickDurations:
    """The parts of one tick. `act` runs from the plan to the end: recording it, then scaling."""

    observe: tuple[Part, ...]
    plan: Part
    act: Part


class Sink(Protocol):
    """Whoever is told of every finished tick of every tier."""

    def observe_tick(
        self,
        plan: Plan,
        observations: Sequence[Observation],
        state: Any,
        durations: TickDurations,
        *,
        slo: Slo | None = None,
    ) -> None:
        """Take note of a tick; must not block and must not raise."""
        ...


class Metering:
    """The stopwatch of one tier's loop. `unix_s` and `monotonic_s` are real clocks."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        *,
        slo: Slo,
        unix_s: Callable[[], float],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._sinks = tuple(sinks)
        self._slo = slo
        self._unix_s = unix_s
        self._monotonic_s = monotonic_s
        self._looks: list[Part] = []
        self._planned: tuple[Part, float, Any] | None = None

    def begin(self) -> Callable[[], Part]:
        """Start to measure; the answer ends it."""
        unix_s, begun_s = self._unix_s(), self._monotonic_s()
        return lambda: Part(start_s=unix_s, duration_s=self._monotonic_s() - begun_s)

    def source(self, inner: Source) -> Source:
        """The same source, measured."""
        return _MeteredSource(inner, self)

    def policy(self, inner: Policy) -> Policy:
        """The same policy, measured; its state is remembered for the end of the tick."""
        return _MeteredPolicy(inner, self)

    def looked(self, part: Part) -> None:
        """One look at everything is over."""
        self._looks.append(part)

    def planned(self, part: Part, state: Any) -> None:
        """The plan is made: what follows is recording and acting."""
        self._planned = part, self._monotonic_s(), state

    def on_tick(self, plan: Plan, observations: tuple[Observation, ...]) -> None:
        """The tick is over: tell everyone."""
        looks, self._looks = tuple(self._looks), []
        if self._planned is None:
            return
        part, since_s, state = self._planned
        act = Part(start_s=part.end_s, duration_s=self._monotonic_s() - since_s)
        durations = TickDurations(observe=looks, plan=part, act=act)
        self._planned = None
        for sink in self._sinks:
            sink.observe_tick(plan, observations, state, durations, slo=self._slo)


class _MeteredSource:
    def __init__(self, inner: Source, meter: Metering) -> None:
        self._inner = inner
        self._meter = meter

    async def observe(self, now_s: float) -> Observation:
        ended = self._meter.begin()
        observation = await self._inner.observe(now_s)
        self._meter.looked(ended())
        return observation


class _MeteredPolicy:
    def __init__(self, inner: Policy, meter: Metering) -> None:
        self._inner = inner
        self._meter = meter

    @property
    def name(self) -> str:
        return self._inner.name

    def start(self) -> Any:
        return self._inner.start()

    def tick(self, state: Any, observations: Sequence[Observation]) -> tuple[Any, Plan]:
        ended = self._meter.begin()
        following, plan = self._inner.tick(state, observations)
        self._meter.planned(ended(), following)
        return following, plan
