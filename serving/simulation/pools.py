"""What a pool of a simulated tier remembers, and which replicas a fault strikes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from serving.errors import Misconfigured
from serving.simulation.faults import Fault, FaultKind, page_fault_of
from serving.simulation.plan import PoolCounts, PoolPlan
from serving.simulation.replica import SimulatedReplica
from serving.simulation.startup import StartUp
from serving.types import ReplicaState, StartKind

WARM_NODE_S = 600.0  # how long a node stays, with its image and weights, after a replica has left


class Pool:
    """A pool's target, its replica-seconds so far, and its changes of ready replicas."""

    def __init__(self, plan: PoolPlan, *, start_s: float) -> None:
        self.plan = plan
        self.desired = plan.initial_replicas
        self.ready_timeline: list[tuple[float, int]] = []
        self._created = 0
        self._provisioned = 0
        self._seconds = 0.0
        self._counted_until_s = start_s
        self._nodes_left_s: list[float] = []

    def next_name(self) -> str:
        """A name that was never used before."""
        self._created += 1
        return f"{self.plan.name}-{self._created:04d}"

    def next_startup(self, now_s: float) -> StartUp:
        """A warm start if a drained replica has left its node lately, else a cold one."""
        profile = self.plan.profile
        self._nodes_left_s = [t for t in self._nodes_left_s if now_s - t <= WARM_NODE_S]
        warm = bool(self._nodes_left_s)
        if warm:
            self._nodes_left_s.pop()
        stages = profile.start_warm_s if warm else profile.start_cold_s
        kind = StartKind.WARM if warm else StartKind.COLD
        stated_s = self.plan.start_s
        return StartUp(stages, total_s=stated_s, kind=kind if stated_s is None else None)

    def next_kind(self, now_s: float) -> StartKind | None:
        """The kind of a start that would begin now; `None` where the plan states one for all."""
        if self.plan.start_s is not None:
            return None
        warm = any(now_s - left_s <= WARM_NODE_S for left_s in self._nodes_left_s)
        return StartKind.WARM if warm else StartKind.COLD

    def leave_node(self, now_s: float) -> None:
        """A drained replica has left its node behind."""
        self._nodes_left_s.append(now_s)

    def change_provisioned(self, change: int, now_s: float) -> None:
        """Replicas came or went."""
        self._seconds = self.replica_seconds(now_s)
        self._counted_until_s = now_s
        self._provisioned += change

    def replica_seconds(self, now_s: float) -> float:
        """Starting, ready and draining replicas, integrated up to now."""
        return self._seconds + self._provisioned * (now_s - self._counted_until_s)

    def note_ready(self, replicas: Iterable[SimulatedReplica], now_s: float) -> None:
        """Append the number of ready replicas to the timeline, if it has changed."""
        ready = self.counts(replicas).ready
        if not self.ready_timeline or self.ready_timeline[-1][1] != ready:
            self.ready_timeline.append((now_s, ready))

    def counts(self, replicas: Iterable[SimulatedReplica]) -> PoolCounts:
        """This pool's replicas among `replicas`, by state."""
        states = [replica.state for replica in replicas if replica.pool == self.plan.name]
        return PoolCounts(
            desired=self.desired,
            ready=states.count(ReplicaState.READY),
            starting=states.count(ReplicaState.STARTING),
            draining=states.count(ReplicaState.DRAINING),
        )


def cheapest_to_drain(ready: Sequence[SimulatedReplica]) -> SimulatedReplica:
    """The one with the least unread KV, then the fewest requests, then the youngest."""

    def price(replica: SimulatedReplica) -> tuple[int, int, float]:
        engine = replica.engine
        unread_tokens = sum(sequence.prompt_tokens for sequence in engine.pinned.values())
        return unread_tokens, engine.held_requests + replica.expected, -replica.created_s

    return min(reversed(ready), key=price)


def struck(fault: Fault, replicas: Iterable[SimulatedReplica]) -> list[SimulatedReplica]:
    """The replicas that a fault strikes: those that exist now, not those that come later."""
    members = [replica for replica in replicas if replica.pool == fault.pool]
    if fault.replicas == "all":
        return members
    if fault.replicas == "every_second":
        return members[1::2]
    named = [replica for replica in members if replica.name == fault.replicas]
    if not named:
        raise Misconfigured(
            "no such replica",
            where="fault.replicas",
            found=repr(fault.replicas),
            expected="all, every_second, or one of " + ", ".join(r.name for r in members),
        )
    return named


def apply_page_or_link_fault(fault: Fault, replica: SimulatedReplica) -> None:
    """Set what a fault other than a kill changes on a replica; `CLEAR` sets it back."""
    if fault.kind is FaultKind.SLOW_LINK:
        replica.link.factor = fault.factor
        return
    if fault.kind is FaultKind.CLEAR:
        replica.link.factor = 1.0
    replica.page_fault = page_fault_of(fault)
