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

    `survives`: what fails in a way nobody foresaw is logged and the pools hold; else it ends the
    loop, as a backtest or a test should. A failed look is one that saw nothing, a failed tick is
    dropped, and a tick that is not in the book is neither acted on nor learned.
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
        last_s: float | None = None
        while True:
            observations: list[Observation] = []
            for _ in range(self.scrapes_per_tick):
                now_s = await self.clock.next_scrape()
                if now_s is None:
                    return state
                if last_s is not None and now_s < last_s:
                    _log.warning(
                        "the clock went back: what is known of later is dropped, and pools do not "
                        "shrink until enough is seen again; see to the host's time service",
                        seconds=round(last_s - now_s, 3),
                    )
                last_s = now_s
                observations.append(await self._look(now_s))
            try:
                following, plan = self.policy.tick(state, observations)
            except Exception:
                if not self.survives:
                    raise
                _log.exception("a tick failed: pools hold, and what it saw is not learned")
                continue
            if not self._is_recorded(observations, plan, following):
                continue
            state = following
            if self.acts:
                await self._act(plan, observations[-1])
            if self.on_tick is not None:
                self.on_tick(plan, tuple(observations))

    async def _look(self, now_s: float) -> Observation:
        try:
            return await self.source.observe(now_s)
        except Exception as error:
            if not self.survives:
                raise
            _log.exception("a look at the tier failed: nothing of it is known, and pools hold")
            return Observation(
                at_s=now_s, problems=(f"the look failed: {type(error).__name__}: {error}"[:200],)
            )

    def _is_recorded(self, observations: list[Observation], plan: Plan, state: Any) -> bool:
        if self.recorder is None:
            return True
        try:
            self.recorder.record(observations, plan, state)
        except Exception:
            if not self.survives:
                raise
            _log.exception("a tick could not be recorded: it is not acted on, and pools hold")
            return False
        return True

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
