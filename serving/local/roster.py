"""Who is in a local tier and who should be: pools, replicas, names, starts that failed.

Counts and remembers; whoever changes a replica or a wish does it elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from serving.local.replica import LocalReplica, PoolSetup
from serving.local.setup import Counts
from serving.local.startups import StartRecord
from serving.local.states import NO_FAILED_STARTS, FailedStarts, LocalState, Wanted
from serving.types import Phase


class Roster:
    """The pools of a tier, what they should have, and the replicas that live, oldest first."""

    def __init__(self, pools: Sequence[PoolSetup]) -> None:
        self.pools = {pool.name: pool for pool in pools}
        self.desired = {pool.name: pool.initial for pool in pools}
        self.failed: dict[str, FailedStarts] = {}
        self.replicas: list[LocalReplica] = []
        self.starts: list[StartRecord] = []
        self._numbers: dict[str, int] = {}

    def named(self, name: str) -> LocalReplica:
        """The replica of a name."""
        return next(replica for replica in self.replicas if replica.name == name)

    def next_name(self, pool: str) -> str:
        """A name that no replica of the pool has had."""
        self._numbers[pool] = self._numbers.get(pool, 0) + 1
        return f"{pool}-{self._numbers[pool]:04d}"

    def ready(self) -> list[LocalReplica]:
        """Those that serve."""
        return [r for r in self.replicas if r.state is LocalState.READY]

    def workers(self) -> list[tuple[str, Phase]]:
        """Those that serve, as the router is told of them."""
        return [(replica.address, replica.pool.phase) for replica in self.ready()]

    def wanted(self) -> list[Wanted]:
        """What every pool should have now, within what the tier allows it."""
        return [
            Wanted(
                pool=pool.name,
                phase=pool.phase,
                variant=pool.variant,
                replicas=min(self.desired[pool.name], pool.most),
                may_flip=pool.may_flip and pool.phase is not Phase.BOTH,
            )
            for pool in self.pools.values()
        ]

    def counts(self, name: str) -> Counts:
        """The counts of one pool; a replica that will flip there counts as starting."""
        own = [r for r in self.replicas if r.pool.name == name]
        coming = sum(1 for r in self.replicas if r.flip_to == name)

        def count(state: LocalState) -> int:
            return sum(1 for r in own if r.state is state)

        return Counts(
            desired=self.desired[name],
            ready=count(LocalState.READY),
            starting=count(LocalState.STARTING) + coming,
            draining=count(LocalState.DRAINING),
        )

    def failed_again(self, pool: str, at_s: float) -> FailedStarts:
        """Remember one more failed start of a pool; all that failed in a row."""
        failed = self.failed.get(pool, NO_FAILED_STARTS).and_one_more(at_s)
        self.failed[pool] = failed
        return failed

    def startups(self) -> tuple[StartRecord, ...]:
        """All starts so far, those that still go on last."""
        going = [r.start.record() for r in self.replicas if r.state is LocalState.STARTING]
        return (*self.starts, *going)
