"""Does what `reconcile` says: begins, drains, takes back, flips and ends replicas.

What an end leads to is in `ends`, how a replica lives in `life`.
"""

from __future__ import annotations

from collections.abc import Callable

from serving.local.actions import Action, CancelStart, Drain, Flip, Resume, Start, Stop, Turn
from serving.local.ends import Ends
from serving.local.events import EventKind
from serving.local.replica import LocalReplica, PoolSetup
from serving.local.shared import Shared
from serving.local.states import LocalState


class Doing:
    """Acts on the replicas of a tier; `begin_life` starts to follow a new one."""

    def __init__(
        self, shared: Shared, ends: Ends, *, begin_life: Callable[[LocalReplica], None]
    ) -> None:
        self._shared, self._ends, self._begin_life = shared, ends, begin_life

    def do(self, action: Action, now_s: float) -> None:
        """One action, now."""
        roster, tell = self._shared.roster, self._shared.diary.tell
        if isinstance(action, Start):
            self._begin(roster.pools[action.pool], now_s)
            return
        replica = roster.named(action.name)
        match action:
            case CancelStart():
                self._end(replica, "its pool wants it no more", grace_s=0.0)
            case Drain():
                self._drain(replica, None, now_s)
            case Flip():
                self._drain(replica, action.to, now_s)
            case Resume():
                self._undrain(replica)
                tell(EventKind.RESUMED, f"{replica.name} serves on", replica)
            case Turn():
                self._turn(replica, now_s)
            case Stop():
                tell(EventKind.DRAINED, f"{replica.name} owes nobody anything", replica)
                self._end(replica, "drained", grace_s=self._shared.timing.grace_s)

    def _begin(self, pool: PoolSetup, now_s: float) -> None:
        roster = self._shared.roster
        replica = LocalReplica(roster.next_name(pool.name), pool, asked_s=now_s)
        roster.replicas.append(replica)
        self._shared.diary.tell(EventKind.STARTED, f"{replica.name} starts", replica)
        self._begin_life(replica)

    def _drain(self, replica: LocalReplica, flip_to: str | None, now_s: float) -> None:
        replica.flip_to = flip_to
        if flip_to is None:
            words = f"{replica.name} drains, then it ends"
        else:
            replica.flip_name = self._shared.roster.next_name(flip_to)
            words = f"{replica.name} drains, then it serves in {flip_to} as {replica.flip_name}"
        if replica.state is not LocalState.DRAINING:
            replica.state = LocalState.DRAINING
            replica.drain_since_s, replica.empty_since_s = now_s, None
        self._shared.diary.tell(EventKind.DRAINING, words, replica)

    def _undrain(self, replica: LocalReplica) -> None:
        replica.state, replica.flip_to, replica.drained = LocalState.READY, None, False
        replica.drain_since_s = replica.empty_since_s = None
        self._shared.tell_router()

    def _turn(self, replica: LocalReplica, now_s: float) -> None:
        assert replica.flip_to is not None
        old, took_s = replica.name, now_s - (replica.drain_since_s or now_s)
        replica.pool = self._shared.roster.pools[replica.flip_to]
        replica.name = replica.flip_name
        replica.asked_s = replica.drain_since_s or now_s
        replica.ready_s, replica.flipped = now_s, True
        self._undrain(replica)
        words = f"{old} serves as {replica.name} now, {took_s:.1f} s after it was asked to"
        self._shared.diary.tell(EventKind.FLIPPED, words, replica)

    def _end(self, replica: LocalReplica, why: str, *, grace_s: float) -> None:
        """Let its process end; what is left to do then is done when it has."""
        replica.ending, replica.why_ending = True, why
        replica.state = LocalState.DRAINING if replica.ready_s is not None else replica.state
        if replica.child is None:
            self._ends.forget(replica, LocalState.GONE)
            return
        self._shared.errands.begin(replica.child.end(grace_s=grace_s))
