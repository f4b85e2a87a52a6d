"""What happened in a local tier, in words, with what was lost. Pure: no clock, no network, no log.

An event is written once and never changed. What is not known to be lost is `None`, not zero.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum


class EventKind(StrEnum):
    """What an event is about."""

    STARTED = "started"
    READY = "ready"
    FAILED_START = "failed-start"
    GIVEN_UP = "given-up"
    SILENT = "silent"
    ANSWERS_AGAIN = "answers-again"
    HUNG = "hung"
    LOST = "lost"
    STOOD_IN = "stood-in"
    DRAINING = "draining"
    RESUMED = "resumed"
    DRAINED = "drained"
    FLIPPED = "flipped"
    ENDED = "ended"
    SCALED = "scaled"
    NOT_CAPPED = "not-capped"
    ROUTER_READY = "router-ready"
    ROUTER_LOST = "router-lost"
    KEEPER_LOST = "keeper-lost"
    SERVES = "serves"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened. `lost_requests` and `lost_kv_tokens` are as last seen before it."""

    at_s: float
    kind: EventKind
    replica: str | None
    pool: str | None
    words: str
    lost_requests: float | None = None
    lost_kv_tokens: float | None = None

    def as_json(self) -> dict[str, object]:
        """The event as a JSON object with the same names."""
        return {**asdict(self), "kind": self.kind.value}
