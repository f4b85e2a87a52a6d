"""The loop: observe, learn, plan, record, act. It owns no clock, no client and no policy.

Each is given to it, so that the same lines run over HTTP, inside a backtest and in a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from autoscaler.ports import Actuator, Clock, Recorder, Source
from autoscaler.tick import Policy
from autoscaler.types import Decision, Plan
from serving.errors import Unavailable
from serving.types import Observation

_log = structlog.get_logger("autoscaler")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One tier's loop. `acts` is false in advise mode: everything happens but the scaling.

    `survives`: a tick that fails in a way nobody foresaw is logged and dropped, and the pools hold;
    else it ends the loop, as a backtest or a test should.
    """

    policy: Policy
    clock: Clock
    source: Source
    actuator: Actuator
    scrapes_per_tick: int
    acts: bool = True
    survives: bool = False
    recorder: Recorder | None = None
    on_tick: Callable[[Plan, tuple[Observation, ...]], None] | None = None

    async def run(self, state: Any) -> Any:
        """Tick until the clock ends; returns the last state. An unfinished tick is dropped."""
        while True:
            observations: list[Observation] = []
            for _ in range(self.scrapes_per_tick):
                now_s = await self.clock.next_scrape()
                if now_s is None:
                    return state
                observations.append(await self.source.observe(now_s))
            try:
                state, plan = self.policy.tick(state, observations)
            except Exception:
                if not self.survives:
                    raise
                _log.exception("a tick failed: pools hold, and what it saw is not learned")
                continue
            if self.recorder is not None:
                self.recorder.record(observations, plan, state)
            if self.acts:
                await self._act(plan, observations[-1])
            if self.on_tick is not None:
                self.on_tick(plan, tuple(observations))

    async def _act(self, plan: Plan, newest: Observation) -> None:
        present = {state.pool: state.desired_replicas for state in newest.pools}
        for decision in plan.decisions:
            wanted = changed_target(decision, present.get(decision.pool))
            if wanted is None:
                continue
            try:
                await self.actuator.scale(decision.pool, wanted, epoch=plan.epoch)
            except Unavailable as error:
                _log.warning(
                    "pool was not scaled; it is asked again at the next tick",
                    pool=str(decision.pool),
                    replicas=wanted,
                    why=error.what,
                )


def changed_target(decision: Decision, present_replicas: int | None) -> int | None:
    """What to ask a scale target for, or `None` when there is nothing to ask.

    A pool whose present size is not known is left alone: an absolute target that was made without
    knowing it could undo what a person just did.
    """
    if decision.replicas is None or present_replicas is None:
        return None
    return None if decision.replicas == present_replicas else decision.replicas
