"""One tick of a policy: observations in, a plan out. Pure: no clock, no network, no log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from autoscaler.learn import learn, remember
from autoscaler.plan import plan
from autoscaler.state import LearnedState, new_state
from autoscaler.types import Plan, TierSettings
from serving.types import Observation


class Policy(Protocol):
    """Whatever turns observations into plans; its state is a value that it alone understands."""

    @property
    def name(self) -> str:
        """The name that tables show."""
        ...

    def start(self) -> Any:
        """The state of a policy that has seen nothing."""
        ...

    def tick(self, state: Any, observations: Sequence[Observation]) -> tuple[Any, Plan]:
        """The next state and the plan, from the observations since the last tick, oldest first."""
        ...


def tick(
    state: LearnedState, observations: Sequence[Observation], tier: TierSettings
) -> tuple[LearnedState, Plan]:
    """Learn every observation in order, then plan from the newest one's pools."""
    for observation in observations:
        state = learn(state, observation, tier)
    newest = observations[-1]
    made = plan(
        state,
        {p.pool: p for p in newest.pools},
        tier,
        now_s=newest.at_s,
        overrides=newest.overrides,
    )
    return remember(state, made), made


class Phasewise:
    """Our own policy: phase-true demand, learned capacity, a forecast at the lead, plan steps."""

    name = "phasewise"

    def __init__(self, tier: TierSettings) -> None:
        self.tier = tier

    def start(self) -> LearnedState:
        """Nothing learned but the priors."""
        return new_state(self.tier)

    def tick(
        self, state: LearnedState, observations: Sequence[Observation]
    ) -> tuple[LearnedState, Plan]:
        """One tick, see `tick`."""
        return tick(state, observations, self.tier)
