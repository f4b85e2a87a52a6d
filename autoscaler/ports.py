"""What the loop asks of the world: a clock, a source, someone who acts, someone who records.

Protocols only; they are satisfied by shape, so that the loop imports no room and no client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from autoscaler.types import Plan
from serving.types import Observation, PoolId


class Clock(Protocol):
    """The loop's only idea of time."""

    async def next_scrape(self) -> float | None:
        """Wait for (or bring about) the next scrape; its time, or `None` when it is all over.

        Raises Unavailable when the time cannot be had.
        """
        ...


class Source(Protocol):
    """Where observations come from. What could not be seen is unknown in them, never an error."""

    async def observe(self, now_s: float) -> Observation:
        """One look at everything."""
        ...


class Actuator(Protocol):
    """Who changes replica counts."""

    async def scale(self, pool: PoolId, replicas: int, *, epoch: int) -> None:
        """Ask for an absolute number; asking twice is harmless. Raises Unavailable."""
        ...


class Recorder(Protocol):
    """Who keeps the book and publishes the plan; called before anyone acts on it."""

    def record(self, observations: Sequence[Observation], plan: Plan, state: Any) -> None:
        """Keep one finished tick."""
        ...
