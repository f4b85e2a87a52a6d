"""From who is a member of a pool to how many replicas it has. Pure: no clock, no network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autoscaler.types import PoolSettings
from collector.observe import Member
from serving.types import PoolState, ReplicaState, Start

_STARTS_TOLD = 8  # of each pool, the newest: more do not end between two looks


def pool_states(
    pools: Sequence[PoolSettings],
    members: Mapping[str, Member] | None,
    desired: Mapping[str, int | None],
    *,
    now_s: float,
) -> tuple[PoolState, ...]:
    """The state of every pool. `members` is `None` when discovery did not answer: then unknown.

    A pool without a member is known to have none only if it is asked to have none: else the list
    contradicts the scale target, and how many replicas there are is unknown.
    """
    states: list[PoolState] = []
    for settings in pools:
        pool = settings.pool
        own = [] if members is None else [m for m in members.values() if m.pool == pool.name]
        asked = desired.get(pool.name)
        known = members is not None and (len(own) > 0 or asked == 0)

        def count(
            state: ReplicaState, own: Sequence[Member] = own, known: bool = known
        ) -> int | None:
            return sum(1 for m in own if m.state is state) if known else None

        starting = sorted(
            (
                (m.created_s, m.start_kind)
                for m in own
                if m.state is ReplicaState.STARTING and m.created_s is not None
            ),
            key=lambda one: (one[0], one[1] or ""),
        )
        kinds = tuple(kind for _, kind in starting)
        states.append(
            PoolState(
                pool=pool,
                observed_at_s=now_s,
                desired_replicas=asked,
                ready_replicas=count(ReplicaState.READY),
                starting_replicas=count(ReplicaState.STARTING),
                draining_replicas=count(ReplicaState.DRAINING),
                starting_since_s=tuple(since_s for since_s, _ in starting),
                accelerators_per_replica=settings.accelerators_per_replica,
                starting_kinds=kinds if any(kinds) else (),
                starts=_ended(own),
                next_start=next((m.next_start for m in own if m.next_start is not None), None),
            )
        )
    return tuple(states)


def _ended(own: Iterable[Member]) -> tuple[Start, ...]:
    """The newest starts that ended and of which the source says more than that."""
    told = [
        Start(created_s=m.created_s, kind=m.start_kind, stages=m.start_stages)
        for m in own
        if m.state is ReplicaState.READY
        and m.created_s is not None
        and (m.start_kind is not None or m.start_stages)
    ]
    return tuple(sorted(told, key=lambda start: start.created_s)[-_STARTS_TOLD:])
