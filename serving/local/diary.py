"""What has happened in a local tier, kept in order and passed on as it happens.

It says when and where; the words are whoever's saw it.
"""

from __future__ import annotations

from collections.abc import Callable

from serving.local.events import Event, EventKind
from serving.local.replica import LocalReplica

MOST_EVENTS = 2000


class Diary:
    """The last events of a tier. `unix_s` tells their time, `on_event` hears each at once."""

    def __init__(
        self, *, unix_s: Callable[[], float], on_event: Callable[[Event], None] | None = None
    ) -> None:
        self.events: list[Event] = []
        self._unix_s, self._on_event = unix_s, on_event

    def tell(
        self,
        kind: EventKind,
        words: str,
        replica: LocalReplica | None = None,
        *,
        pool: str | None = None,
        lost_requests: float | None = None,
        lost_kv_tokens: float | None = None,
    ) -> None:
        """Something has happened: to a replica, to a pool, or to the tier."""
        event = Event(
            at_s=self._unix_s(),
            kind=kind,
            replica=None if replica is None else replica.name,
            pool=pool if replica is None else replica.pool.name,
            words=words,
            lost_requests=lost_requests,
            lost_kv_tokens=lost_kv_tokens,
        )
        self.events.append(event)
        del self.events[:-MOST_EVENTS]
        if self._on_event is not None:
            self._on_event(event)
