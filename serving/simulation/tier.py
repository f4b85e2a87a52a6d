"""A tier in virtual time: replicas, router, traffic and faults in one loop of events.

`advance` plays every event up to a time. The same plan, trace, seed and calls give the same
numbers on any machine. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

from serving.errors import Misconfigured
from serving.simulation.faults import Fault, FaultKind
from serving.simulation.journeys import LEASE, PULLED, READY, TURN, Journeys
from serving.simulation.outcomes import Outcomes
from serving.simulation.plan import PoolCounts, PoolPlan, RouterPolicy, TierPlan
from serving.simulation.pools import Pool, apply_page_or_link_fault, cheapest_to_drain, struck
from serving.simulation.replica import SimulatedReplica
from serving.simulation.router import Router
from serving.simulation.telemetry import RouterTelemetry
from serving.simulation.traffic import Request
from serving.types import Phase, ReplicaState, StartKind

__all__ = [
    "PoolCounts",
    "PoolPlan",
    "RouterPolicy",
    "SimulatedReplica",
    "SimulatedTier",
    "TierPlan",
]


class SimulatedTier:
    """The whole tier. `start_s` is its time at the beginning and that of the trace's second 0.

    `now_s` is the virtual time, `end_s` that of the last arrival, `router` the front end's
    numbers, `outcomes` what became of each request (by its position in `requests`).
    """

    def __init__(
        self, plan: TierPlan, requests: Sequence[Request], *, seed: int, start_s: float = 0.0
    ) -> None:
        self.plan = plan
        self.now_s = start_s
        self.end_s = start_s + (requests[-1].arrival_s if requests else 0.0)
        self.outcomes = Outcomes(len(requests))
        self._requests = requests
        self._start_s = start_s
        self._arrived = 0
        self._replicas: list[SimulatedReplica] = []
        self._pools = {pool.name: Pool(pool, start_s=start_s) for pool in plan.pools}
        self._router = Router(
            policy=plan.router_policy,
            aggregated=plan.pools[0].phase is Phase.BOTH,
            outcomes=self.outcomes,
            seed=seed,
        )
        self._journeys = Journeys(self._router, self._vanish, start_s=start_s)
        self._events = self._journeys.events
        self._max_model_len = min(pool.max_model_len for pool in plan.pools)
        for pool in self._pools.values():
            for _ in range(pool.plan.initial_replicas):
                self._create(pool, ready=True)
            pool.note_ready(self._replicas, start_s)

    # ---- what an observer sees

    @property
    def router(self) -> RouterTelemetry:
        """The front end's numbers."""
        return self._router.telemetry

    @property
    def requests(self) -> Sequence[Request]:
        """The trace that is played, its arrivals in seconds after the tier's own start."""
        return self._requests

    @property
    def replica_seconds(self) -> dict[str, float]:
        """Provisioned replica-seconds of each pool: starting, ready and draining."""
        return {name: pool.replica_seconds(self.now_s) for name, pool in self._pools.items()}

    @property
    def ready_timeline(self) -> dict[str, list[tuple[float, int]]]:
        """For each pool the changes of its ready replicas as (time, replicas)."""
        return {name: pool.ready_timeline for name, pool in self._pools.items()}

    @property
    def finished_replaying(self) -> bool:
        """Every request of the trace has arrived and ended."""
        return self._arrived == len(self._requests) and not self.router.running

    def replicas(self) -> tuple[SimulatedReplica, ...]:
        """Every replica that exists now, in order of creation."""
        return tuple(self._replicas)

    def pool_counts(self, pool: str) -> PoolCounts:
        """How many replicas a pool has, by state."""
        return self._pool(pool).counts(self._replicas)

    # ---- time

    def next_start(self, pool: str) -> StartKind | None:
        """How the pool's next replica will start; `None` where all starts are alike."""
        return self._pool(pool).next_kind(self.now_s)

    def advance(self, seconds: float) -> None:
        """Play every event up to `now_s + seconds`, that instant included."""
        until_s = self.now_s + seconds
        events, journeys, requests, start_s = (
            self._events,
            self._journeys,
            self._requests,
            self._start_s,
        )
        last = len(requests)
        arrival_s = start_s + requests[self._arrived].arrival_s if self._arrived < last else inf
        while True:
            event_s = events[0][0] if events else inf
            if arrival_s <= event_s:
                if arrival_s > until_s or arrival_s == inf:
                    break
                self._arrive(arrival_s)
                arrival_s = (
                    start_s + requests[self._arrived].arrival_s if self._arrived < last else inf
                )
                continue
            if event_s > until_s:
                break
            _, _, kind, subject = heappop(events)
            journeys.now_s = event_s
            if kind == TURN:
                end_s = subject.engine.turn(event_s)
                if end_s is not None:
                    journeys.number += 1
                    heappush(events, (end_s, journeys.number, TURN, subject))
                elif subject.state is ReplicaState.DRAINING:
                    journeys.retire_if_done(subject)
            elif kind == PULLED:
                journeys.end_pull(subject)
            elif kind == LEASE:
                journeys.end_leases(subject)
            else:
                self._become_ready(subject, event_s)
        self.now_s = journeys.now_s = until_s
        for replica in self._replicas:
            replica.sync(until_s)

    def _arrive(self, now_s: float) -> None:
        request = self._requests[self._arrived]
        self._journeys.now_s = now_s
        self._journeys.arrive(
            self._arrived,
            arrival_s=now_s,
            input_tokens=request.input_tokens,
            output_tokens=request.output_tokens,
            fits=request.input_tokens + request.output_tokens <= self._max_model_len,
        )
        self._arrived += 1

    # ---- what an operator does

    def scale(self, pool: str, replicas: int) -> None:
        """Set a pool's target; absolute, so twice is once.

        Above the present size new replicas start. Below it starting ones are cancelled, youngest
        first, then ready ones drain, cheapest first. Draining ones do not come back.
        """
        if replicas < 0:
            raise Misconfigured(
                "a pool cannot be smaller than nothing",
                where=f"pool {pool}",
                found=repr(replicas),
                expected="0 or more",
            )
        target = self._pool(pool)
        target.desired = replicas
        counts = target.counts(self._replicas)
        for _ in range(replicas - counts.ready - counts.starting):
            self._create(target)
        for _ in range(counts.ready + counts.starting - replicas):
            starting = self._members(pool, ReplicaState.STARTING)
            if starting:
                starting[-1].engine.dead = True
                self._vanish(starting[-1])
            else:
                self._drain(cheapest_to_drain(self._members(pool, ReplicaState.READY)))
        target.note_ready(self._replicas, self.now_s)

    def inject(self, fault: Fault) -> None:
        """Let something fail now. A killed replica is replaced, as a Deployment does."""
        pool = self._pool(fault.pool)
        for replica in struck(fault, self._replicas):
            if fault.kind is not FaultKind.KILL:
                apply_page_or_link_fault(fault, replica)
                continue
            self._vanish(replica)
            self._journeys.kill(replica, self._replicas)
        if fault.kind is FaultKind.KILL:
            self.scale(fault.pool, pool.desired)

    def _pool(self, name: str) -> Pool:
        if name not in self._pools:
            raise Misconfigured(
                "no such pool",
                where=f"tier {self.plan.name}",
                found=repr(name),
                expected=", ".join(self._pools),
            )
        return self._pools[name]

    def _members(self, pool: str, state: ReplicaState) -> list[SimulatedReplica]:
        return [r for r in self._replicas if r.pool == pool and r.state is state]

    # ---- the life of a replica

    def _create(self, pool: Pool, *, ready: bool = False) -> None:
        startup = None if ready else pool.next_startup(self.now_s)
        replica = SimulatedReplica(
            pool.next_name(),
            pool.plan,
            startup,
            self._journeys,
            user_itl=self.router.itl,
            created_s=self.now_s,
        )
        self._replicas.append(replica)
        pool.change_provisioned(1, self.now_s)
        if startup is None:
            self._router.add(replica)
        else:
            self._journeys.after(startup.total_s, READY, replica)

    def _become_ready(self, replica: SimulatedReplica, now_s: float) -> None:
        if replica.engine.dead:
            return
        replica.become_ready(now_s)
        self._router.add(replica)
        self._pools[replica.pool].note_ready(self._replicas, now_s)
        self._journeys.release_held()

    def _drain(self, replica: SimulatedReplica) -> None:
        replica.state = ReplicaState.DRAINING
        self._router.remove(replica)
        self._journeys.retire_if_done(replica)

    def _vanish(self, replica: SimulatedReplica) -> None:
        """Take a replica off the list: cancelled, killed, or drained to the end."""
        now_s, pool = self._journeys.now_s, self._pools[replica.pool]
        self._replicas.remove(replica)
        self._router.forget(replica)
        pool.change_provisioned(-1, now_s)
        if replica.is_done:
            pool.leave_node(now_s)
        pool.note_ready(self._replicas, now_s)
