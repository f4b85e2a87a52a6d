"""What follows when a replica has ended: asked for, failed to start, or lost with what it had.

The replica is forgotten, what it left is taken away, and it is told. Whether another takes its
place is decided by `reconcile`.
"""

from __future__ import annotations

import asyncio

from serving.local import keeper
from serving.local.events import EventKind
from serving.local.replica import LocalReplica
from serving.local.shared import Shared
from serving.local.stand_in import StandIn
from serving.local.states import MOST_FAILED_STARTS, LocalState
from serving.types import Phase


class Ends:
    """Takes note of the ends of a tier's replicas."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def ended(self, replica: LocalReplica, code: int) -> None:
        """Its first process has ended: asked for or not."""
        if replica.ending:
            self.forget(replica, LocalState.GONE)
            words = f"{replica.name} has ended: {replica.why_ending}"
            self._shared.diary.tell(EventKind.ENDED, words, replica)
        elif replica.ready_s is None:
            said = replica.child.last_line if replica.child is not None else ""
            self.failed_start(replica, f"{replica.why_ending or how_ended(code)}; it said: {said}")
        else:
            self._lost(replica, replica.why_ending or how_ended(code))

    def failed_start(self, replica: LocalReplica, why: str) -> None:
        """It has ended before it gave an answer."""
        now_s = self._shared.unix_s()
        replica.start.end(now_s, failed=True)
        self._shared.roster.starts.append(replica.start.record())
        self.forget(replica, LocalState.LOST)
        words = f"{replica.name} did not start: {why}"
        self._shared.diary.tell(EventKind.FAILED_START, words, replica)
        self._count_failure(replica, now_s)

    def forget(self, replica: LocalReplica, state: LocalState) -> None:
        """It is no longer there: neither for the router nor for the plan."""
        replica.state = state
        if replica in self._shared.roster.replicas:
            self._shared.roster.replicas.remove(replica)
        if not self._shared.stopping:
            self._shared.errands.begin(self._clean_after(replica))
        self._shared.wake.set()

    def _lost(self, replica: LocalReplica, why: str) -> None:
        figures, front = replica.figures, self._shared.front
        had = None if front is None else front.had_for(replica.address)
        self.forget(replica, LocalState.LOST)
        now_s = self._shared.unix_s()
        parts = [f"{replica.name} is lost: {why}"]
        parts.append(
            "what was there is not known"
            if figures.requests is None
            else f"with it {figures.requests:g} requests and KV of {figures.kv_tokens or 0:g} "
            "tokens, as last seen"
        )
        if had:
            parts.append(f"the router had {had:g} under way for it")
        self._shared.diary.tell(
            EventKind.LOST,
            "; ".join(parts),
            replica,
            lost_requests=figures.requests,
            lost_kv_tokens=figures.kv_tokens,
        )
        if now_s - (replica.ready_s or now_s) < self._shared.timing.soon_s:
            self._count_failure(replica, now_s)

    def _count_failure(self, replica: LocalReplica, now_s: float) -> None:
        pool = replica.pool.name
        failed = self._shared.roster.failed_again(pool, now_s)
        if failed.count == MOST_FAILED_STARTS:
            words = f"{pool} is given up after {failed.count} failed starts, until it is scaled"
            self._shared.diary.tell(EventKind.GIVEN_UP, words, pool=pool)

    async def _clean_after(self, replica: LocalReplica) -> None:
        """End what came from it and outlived it, and take away what it held."""
        if replica.child is not None:
            await asyncio.to_thread(keeper.kill_all, "", [replica.child.pid])
        if replica.state is LocalState.LOST and replica.ready_s is not None:
            self._shared.errands.begin(self._stand_in(replica))
        if replica.group is not None:
            await asyncio.to_thread(replica.group.remove)
        await asyncio.to_thread(keeper.remove_shared_memory, self._shared.state.shared_memory)
        self._shared.save_sessions()

    async def _stand_in(self, lost: LocalReplica) -> None:
        """Others of its pool answer for the lost one while the router may still send there."""
        shared, front = self._shared, self._shared.front
        if front is None or lost.command is None:
            return

        def living() -> int | None:
            others = [r for r in shared.roster.ready() if r.pool is lost.pool and r.command]
            other = min(others, key=lambda r: r.figures.requests or 0.0, default=None)
            return None if other is None or other.command is None else other.command.http_port

        # prefill may free the KV of a request that decode does not ask for within the lease
        is_decode = lost.pool.phase is Phase.DECODE
        hold_s = 0.8 * lost.pool.kv_lease_s if is_decode else shared.timing.start_limit_s
        stand_in = StandIn(lost.command.http_port, living=living, hold_s=hold_s)
        if not await stand_in.start():
            return
        end_s = shared.unix_s() + shared.timing.drain_limit_s
        try:
            while not shared.stopping and shared.unix_s() < end_s:
                await asyncio.sleep(shared.timing.look_s)
                is_forgotten = front.registrar.forgotten(lost.address)
                if is_forgotten and await front.has_for(lost.address) == 0.0:
                    break
        finally:
            await stand_in.stop(grace_s=0.0 if shared.stopping else shared.timing.drain_limit_s)
        if stand_in.passed or stand_in.dropped:
            words = f"{stand_in.passed} requests that the router still sent to {lost.name} were "
            words += f"passed to others of {lost.pool.name}"
            words += f", {stand_in.dropped} dropped, for there was none" * bool(stand_in.dropped)
            shared.diary.tell(EventKind.STOOD_IN, words, pool=lost.pool.name)


def how_ended(code: int) -> str:
    """An exit status in words."""
    return f"its process was ended by signal {-code}" if code < 0 else f"its process ended ({code})"
