"""What happens to requests between router, engines and KV links, at each event of the tier.

It holds the heap of coming events as (time, number, kind, subject): the number keeps events of one
instant in the order in which they were planned. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappush
from itertools import chain
from typing import Any

from serving.simulation.accounting import count_transfer
from serving.simulation.kv_link import reserve
from serving.simulation.replica import SimulatedReplica
from serving.simulation.router import Router
from serving.simulation.sequence import Flight, Leg, Sequence
from serving.types import Phase, ReplicaState

TURN, PULLED, LEASE, READY = range(4)  # kinds of events, of a replica (`PULLED`: a sequence)


class Journeys:
    """The outside of every engine (`outside.Outside`). `now_s` is set by whoever plays events."""

    def __init__(
        self, router: Router, vanish: Callable[[SimulatedReplica], None], *, start_s: float
    ) -> None:
        self.router = router
        self.now_s = start_s
        self.events: list[tuple[float, int, int, Any]] = []
        self.number = 0
        self._vanish = vanish

    def after(self, seconds: float, kind: int, subject: object) -> None:
        """Plan an event."""
        self._at(self.now_s + seconds, kind, subject)

    def _at(self, at_s: float, kind: int, subject: object) -> None:
        self.number += 1
        heappush(self.events, (at_s, self.number, kind, subject))

    # ---- on the way in

    def arrive(
        self, index: int, *, arrival_s: float, input_tokens: int, output_tokens: int, fits: bool
    ) -> None:
        """A request of the trace arrives; one that no engine can hold is refused (HTTP 400)."""
        flight = Flight(
            index=index,
            arrival_s=arrival_s,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )
        router = self.router
        router.telemetry.requests += 1
        router.telemetry.running += 1
        if not fits:
            router.fail(flight)
        elif router.held or not router.can_route():
            router.hold(flight)
        else:
            self._dispatch(flight)

    def release_held(self) -> None:
        """Send on what the router holds, as far as replicas are ready."""
        while self.router.held and self.router.can_route():
            self._dispatch(self.router.pop_held())

    def _dispatch(self, flight: Flight) -> None:
        replica = self.router.assign(flight, self.now_s)
        answers = flight.leg is Leg.DECODE
        max_tokens = flight.output_tokens if answers else 1
        self._enqueue(
            Sequence(flight, replica, arrived_s=self.now_s, max_tokens=max_tokens), replica
        )

    def _enqueue(self, sequence: Sequence, replica: SimulatedReplica) -> None:
        replica.engine.waiting.append(sequence)
        self._wake(replica)

    def _wake(self, replica: SimulatedReplica) -> None:
        engine = replica.engine
        if engine.running_step or engine.dead:
            return
        end_s = engine.begin(self.now_s)
        if end_s is not None:
            self._at(end_s, TURN, replica)
        else:
            self.retire_if_done(replica)

    def retire_if_done(self, replica: SimulatedReplica) -> None:
        """Let a draining replica vanish once nobody waits for anything on it."""
        if replica.is_done and not replica.engine.dead:
            replica.engine.dead = True
            self._vanish(replica)

    # ---- what engines tell (outside.Outside)

    def prefilled(self, sequence: Sequence, now_s: float) -> None:
        """The KV is pinned for its lease; the request goes on to its decode replica."""
        prefill, flight = sequence.replica, sequence.flight
        sequence.lease_end_s = now_s + prefill.plan.kv_lease_s
        self._watch_leases(prefill, sequence)
        decode = self.router.hand_over(flight, now_s)
        if decode.engine.dead:
            self.router.fail(flight)
            return
        self._enqueue(
            Sequence(
                flight,
                decode,
                arrived_s=now_s,
                max_tokens=flight.output_tokens,
                source=sequence,
            ),
            decode,
        )

    def pull(self, sequence: Sequence, now_s: float) -> bool:
        """Put the transfer on both links, unless the KV is gone."""
        source = sequence.source
        assert source is not None
        if source.replica.engine.dead:
            _count_dead_peer(sequence.replica)
            return False
        if source.flight.index not in source.replica.engine.pinned:
            return False
        source.being_pulled = True
        sequence.pull_start_s, end_s = reserve(
            source.replica.link,
            sequence.replica.link,
            now_s=now_s,
            transfer_bytes=_kv_bytes(sequence),
        )
        self._at(end_s, PULLED, sequence)
        return True

    def first_token(self, sequence: Sequence, now_s: float) -> None:
        """To the router's clock."""
        self.router.first_token(sequence.flight, now_s)

    def finished(self, sequence: Sequence, now_s: float) -> None:
        """To the router's clock."""
        self.router.finish(sequence.flight, now_s)

    def failed(self, sequence: Sequence, now_s: float) -> None:
        """To the router, which retries nothing."""
        self.router.fail(sequence.flight)

    # ---- KV on its way

    def end_pull(self, sequence: Sequence) -> None:
        """The KV has arrived, if both ends still live: free it on prefill, join on decode."""
        replica, source = sequence.replica, sequence.source
        assert source is not None
        if replica.engine.pulling.get(sequence.flight.index) is not sequence:
            return
        telemetry = replica.telemetry
        assert telemetry is not None
        count_transfer(
            telemetry,
            seconds=self.now_s - sequence.pull_start_s,
            transferred_bytes=_kv_bytes(sequence),
            blocks=-(-sequence.prompt_tokens // replica.plan.block_size_tokens),
        )
        self._unpin(source)
        replica.engine.arrive_kv(sequence)
        self._wake(replica)

    def end_leases(self, replica: SimulatedReplica) -> None:
        """Free what nobody has begun to pull in time, and watch the next lease."""
        replica.lease_timer = False
        if replica.engine.dead:
            return
        for sequence in list(replica.engine.pinned.values()):
            if sequence.lease_end_s > self.now_s:
                self._watch_leases(replica, sequence)
                break
            if not sequence.being_pulled:
                self._expire(sequence)

    def _watch_leases(self, replica: SimulatedReplica, oldest: Sequence) -> None:
        if not replica.lease_timer:
            replica.lease_timer = True
            self._at(oldest.lease_end_s, LEASE, replica)

    def _expire(self, sequence: Sequence) -> None:
        telemetry = sequence.replica.telemetry
        assert telemetry is not None
        telemetry.kv_expired_requests += 1
        self._unpin(sequence)

    def _unpin(self, source: Sequence) -> None:
        source.replica.engine.unpin(source)
        self._wake(source.replica)

    # ---- on the way down

    def kill(self, replica: SimulatedReplica, others: Iterable[SimulatedReplica]) -> None:
        """A replica is gone with its KV: its requests fail, and so do pulls from it."""
        engine = replica.engine
        engine.dead = True
        for sequence in list(engine.pulling.values()):
            source = sequence.source
            assert source is not None
            source.being_pulled = False
            if not source.replica.engine.dead and source.lease_end_s <= self.now_s:
                self._expire(source)
        lost = chain(
            engine.waiting,
            engine.pulling.values(),
            engine.pulled,
            engine.prefilling,
            [first for first in engine.firsts if first not in engine.prefilling],
            engine.batch.members.values(),
        )
        for sequence in list(lost):
            self.router.fail(sequence.flight)
        engine.pulling.clear()
        for other in list(others):
            self._break_pulls(other, source=replica)
            if other.state is ReplicaState.DRAINING:
                self.retire_if_done(other)

    def _break_pulls(self, replica: SimulatedReplica, *, source: SimulatedReplica) -> None:
        if replica.phase is not Phase.DECODE:
            return
        for sequence in list(replica.engine.pulling.values()):
            if sequence.source is not None and sequence.source.replica is source:
                _count_dead_peer(replica)
                replica.engine.abort_pull(sequence, self.now_s)
        self._wake(replica)


def _kv_bytes(sequence: Sequence) -> float:
    return sequence.prompt_tokens * sequence.replica.plan.profile.kv_bytes_per_token


def _count_dead_peer(replica: SimulatedReplica) -> None:
    """A dead peer costs a failed notification beside the failed transfer."""
    telemetry = replica.telemetry
    assert telemetry is not None
    telemetry.kv_transfer_failures += 1
    telemetry.kv_failed_notifications += 1
