"""What to do next about all replicas of a local tier: what is wanted and what is there, compared.

It does nothing itself, and asked again after its actions it has nothing to add. A dead replica is
no longer there: the deficit that it leaves is filled like any other. How a drain is done and when
it is over is the supervisor's.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from serving.local.actions import (
    Action,
    CancelStart,
    Drain,
    Flip,
    Resume,
    Start,
    Stop,
    Turn,
)
from serving.local.states import NO_FAILED_STARTS, FailedStarts, LocalState, Replica, Wanted

YOUNG_START_S = 3.0
"""A start that has gone on for less is given up where a flip can take its place: who scales two
pools does it one after the other."""


def reconcile(
    wanted: Sequence[Wanted],
    replicas: Iterable[Replica],
    *,
    now_s: float,
    failed: Mapping[str, FailedStarts] | None = None,
    flips: bool = True,
) -> tuple[Action, ...]:
    """What to do now, in the order in which to do it.

    A surplus is used before it is ended: a ready replica that its pool can spare flips to a pool of
    the same variant that lacks one, the one with the least work first, of those the youngest. A
    pool keeps as many ready replicas as are wanted of it: what is not ready yet is given up first.
    """
    plan = _Plan(wanted, replicas)
    plan.finish_drains()
    plan.resume()
    if flips:
        plan.redirect()
        plan.flip(now_s)
    plan.shrink()
    plan.start(now_s, failed or {})
    return tuple(plan.actions)


class _Plan:
    """The actions so far, and the counts as they will be."""

    def __init__(self, wanted: Sequence[Wanted], replicas: Iterable[Replica]) -> None:
        self.actions: list[Action] = []
        self.wanted = {want.pool: want for want in wanted}
        living = [
            r
            for r in replicas
            if r.state not in (LocalState.GONE, LocalState.LOST) and r.pool in self.wanted
        ]
        draining = [r for r in living if r.state is LocalState.DRAINING and not r.ending]
        self.starting = _by_pool(living, LocalState.STARTING)
        self.ready = _by_pool(living, LocalState.READY)
        self.coming: dict[str, list[Replica]] = {}
        self.leaving: dict[str, list[Replica]] = {}
        for replica in draining:
            if replica.flip_to is None:
                self.leaving.setdefault(replica.pool, []).append(replica)
            else:
                self.coming.setdefault(replica.flip_to, []).append(replica)

    def missing(self, pool: str) -> int:
        """How many more are wanted; negative if there are too many."""
        groups = (self.starting, self.ready, self.coming)
        return self.wanted[pool].replicas - sum(len(group.get(pool, ())) for group in groups)

    def finish_drains(self) -> None:
        """Drained replicas turn or end; one whose new pool wants it no more ends too."""
        for pool, group in self.coming.items():
            for replica in list(group):
                if replica.drained and self.missing(pool) >= 0:
                    self.actions.append(Turn(replica.name, pool))
        for group in self.leaving.values():
            for replica in list(group):
                if replica.drained:
                    group.remove(replica)
                    self.actions.append(Stop(replica.name))

    def resume(self) -> None:
        """A deficit takes back what is just leaving the same pool: it serves at once."""
        for pool in self.wanted:
            back = sorted(self.leaving.get(pool, ()), key=_asked, reverse=True)
            while self.missing(pool) > 0 and back:
                replica = back.pop()
                self.leaving[pool].remove(replica)
                self.ready.setdefault(pool, []).append(replica)
                self.actions.append(Resume(replica.name))
            for group in self.coming.values():  # flips away from here that have not turned
                for replica in [r for r in group if r.pool == pool and not r.drained]:
                    if self.missing(pool) <= 0:
                        break
                    group.remove(replica)
                    self.ready.setdefault(pool, []).append(replica)
                    self.actions.append(Resume(replica.name))

    def redirect(self) -> None:
        """What is leaving another pool serves where it is missed, in place of a new one."""
        for pool, other in self._pairs():
            leaving = sorted(self.leaving.get(other, ()), key=_asked)
            while self.missing(pool) > 0 and leaving:
                replica = leaving.pop()
                self.leaving[other].remove(replica)
                self.coming.setdefault(pool, []).append(replica)
                self.actions.append(Flip(replica.name, pool))

    def flip(self, now_s: float) -> None:
        """From pools with ready replicas to spare to pools that lack some, or have just begun."""
        for pool, other in self._pairs():
            young = [
                r for r in self.starting.get(pool, ()) if 0.0 <= now_s - r.asked_s < YOUNG_START_S
            ]
            young.sort(key=_asked)
            while self._spare(other) > 0 and (self.missing(pool) > 0 or young):
                if self.missing(pool) <= 0:
                    given_up = young.pop()
                    self.starting[pool].remove(given_up)
                    self.actions.append(CancelStart(given_up.name))
                if self.missing(pool) > 0:
                    replica = min(self.ready[other], key=_work_first)
                    self.ready[other].remove(replica)
                    self.coming.setdefault(pool, []).append(replica)
                    self.actions.append(Flip(replica.name, pool))

    def _pairs(self) -> list[tuple[str, str]]:
        """Pools and others from which replicas may flip to them."""
        return [
            (pool, other)
            for pool, want in self.wanted.items()
            for other, source in self.wanted.items()
            if pool != other
            and (want.may_flip and source.may_flip and want.variant == source.variant)
        ]

    def _spare(self, pool: str) -> int:
        ready = len(self.ready.get(pool, ())) - self.wanted[pool].replicas
        return min(ready, -self.missing(pool))

    def shrink(self) -> None:
        """Too many: first what has not started, then what would flip here, then what is ready."""
        for pool in self.wanted:
            starting = sorted(self.starting.get(pool, ()), key=_asked)
            while self.missing(pool) < 0 and starting:
                replica = starting.pop()
                self.starting[pool].remove(replica)
                self.actions.append(CancelStart(replica.name))
            coming = sorted(self.coming.get(pool, ()), key=_asked)
            while self.missing(pool) < 0 and coming:
                replica = coming.pop()
                self.coming[pool].remove(replica)
                self.actions.append(Drain(replica.name))
            while self.missing(pool) < 0:
                replica = min(self.ready[pool], key=_kv_first)
                self.ready[pool].remove(replica)
                self.actions.append(Drain(replica.name))

    def start(self, now_s: float, failed: Mapping[str, FailedStarts]) -> None:
        """What is still missing starts, unless starts of the pool failed too lately."""
        for pool in self.wanted:
            if failed.get(pool, NO_FAILED_STARTS).waits_until_s() > now_s:
                continue
            self.actions.extend(Start(pool) for _ in range(self.missing(pool)))


def _by_pool(replicas: Iterable[Replica], state: LocalState) -> dict[str, list[Replica]]:
    groups: dict[str, list[Replica]] = {}
    for replica in replicas:
        if replica.state is state:
            groups.setdefault(replica.pool, []).append(replica)
    return groups


def _asked(replica: Replica) -> tuple[float, str]:
    return replica.asked_s, replica.name


def _most_if_unknown(value: float | None) -> float:
    return float("inf") if value is None else value


def _work_first(replica: Replica) -> tuple[float, float, float, str]:
    requests, kv = _most_if_unknown(replica.requests), _most_if_unknown(replica.kv_ratio)
    return requests, kv, -(replica.ready_s or 0.0), replica.name


def _kv_first(replica: Replica) -> tuple[float, float, float, str]:
    requests, kv = _most_if_unknown(replica.requests), _most_if_unknown(replica.kv_ratio)
    return kv, requests, -(replica.ready_s or 0.0), replica.name
