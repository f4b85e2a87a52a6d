"""What can be done with the replicas of a local tier, one thing at a time.

`reconcile` says which of them is next, `doing` does it. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Start:
    """Start a new replica of a pool."""

    pool: str


@dataclass(frozen=True, slots=True)
class CancelStart:
    """End a replica that serves nobody yet."""

    name: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Let a replica finish what it has and then end it, also one that was to flip."""

    name: str


@dataclass(frozen=True, slots=True)
class Flip:
    """Let a replica finish what it has and then serve in another pool."""

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Let a draining replica serve on where it was."""

    name: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A drained replica that flips begins to serve in its new pool."""

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End a drained replica's process."""

    name: str


Action = Start | CancelStart | Drain | Flip | Resume | Turn | Stop
