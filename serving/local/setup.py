"""What the supervisor is given: how things are started, how long to wait; and what it counts.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from serving.local.front import RouterCommand
from serving.local.replica import EngineCommand
from serving.types import StartKind


class Launcher(Protocol):
    """Says how engines and the router are started; starts nothing."""

    async def weights(self, pool: str) -> bool | None:
        """Make the pool's weights be there. True if they had to be fetched, `None`: not known.

        Raises `Unavailable` if they cannot be had.
        """

    def next_start(self, pool: str) -> StartKind | None:
        """Whether the weights would have to be fetched for a start now."""

    def engine(
        self, pool: str, *, name: str, http_port: int, side_channel_port: int, metrics_port: int
    ) -> EngineCommand:
        """A new engine of a pool."""

    def router(
        self, *, http_port: int, metrics_port: int, discovery_port: int
    ) -> RouterCommand | None:
        """The tier's front end; `None` for a tier without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How often it looks and how long it waits, in seconds."""

    look_s: float = 0.25
    page_s: float = 1.0
    answer_s: float = 3.0
    silent_s: float = 5.0
    hung_s: float = 15.0
    start_limit_s: float = 600.0
    first_answer_s: float = 120.0
    drain_limit_s: float = 900.0
    grace_s: float = 10.0
    soon_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many replicas a pool should have and has."""

    desired: int
    ready: int
    starting: int
    draining: int
