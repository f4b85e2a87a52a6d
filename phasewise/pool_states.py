"""From who is a member of a pool to how many replicas it has. Pure: no clock, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoscaler.types import PoolSettings
from collector.observe import Member
from serving.types import PoolState, ReplicaState


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

        since = sorted(
            m.created_s for m in own if m.state is ReplicaState.STARTING and m.created_s is not None
        )
        states.append(
            PoolState(
                pool=pool,
                observed_at_s=now_s,
                desired_replicas=asked,
                ready_replicas=count(ReplicaState.READY),
                starting_replicas=count(ReplicaState.STARTING),
                draining_replicas=count(ReplicaState.DRAINING),
                starting_since_s=tuple(since),
                accelerators_per_replica=settings.accelerators_per_replica,
            )
        )
    return tuple(states)
