"""The life of one engine while its process lives: until it answers, then looked at again and again.

What it sees changes the replica and is told as events; whether another takes its place is decided
elsewhere. A process that must end is ended here, and whoever waits for it hears of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from serving.errors import Unavailable
from serving.local.child import Child
from serving.local.cpu_quota import make_group
from serving.local.drains import DrainLook, waits_for
from serving.local.events import EventKind
from serving.local.replica import LocalReplica
from serving.local.shared import Shared
from serving.local.states import LocalState
from serving.types import StartStage


class Life:
    """Follows one replica: `spawn`, then `serve` until it is cancelled."""

    def __init__(
        self, replica: LocalReplica, shared: Shared, *, is_ready: Callable[[LocalReplica], None]
    ) -> None:
        self._replica, self._shared, self._is_ready = replica, shared, is_ready

    async def spawn(self) -> None:
        """Get the weights and start the process. Raises `Unavailable` if either cannot be."""
        replica, log, pool = self._replica, self._replica.start, self._replica.pool
        log.enter(StartStage.WEIGHTS, self._shared.unix_s())
        log.cold = await self._shared.launcher.weights(pool.name)
        self._still_wanted()
        log.enter(StartStage.PROCESS, self._shared.unix_s())
        replica.command = self._shared.launcher.engine(
            pool.name,
            name=replica.name,
            http_port=self._shared.ports.take(),
            side_channel_port=self._shared.ports.take(),
            metrics_port=self._shared.ports.take(),
        )
        replica.child = await Child.spawn(
            replica.command.argv,
            env=self._shared.env(replica.command.env),
            log_file=self._shared.logs / f"{replica.engine}.log",
        )
        self._shared.save_sessions()
        if replica.ending:
            await replica.child.end(grace_s=0.0)
        self._still_wanted()

    def _still_wanted(self) -> None:
        if self._replica.ending:
            raise Unavailable(f"{self._replica.name} is not wanted any more")

    async def serve(self) -> None:
        """While its process lives: until it answers, then look at it again and again."""
        replica = self._replica
        try:
            async with asyncio.timeout(self._shared.timing.start_limit_s):
                await self._get_ready()
        except (TimeoutError, Unavailable) as error:
            why = str(error) or f"it was not ready after {self._shared.timing.start_limit_s:g} s"
            replica.why_ending = why
            assert replica.child is not None
            self._shared.errands.begin(replica.child.end(grace_s=0.0))
            return
        while True:
            await asyncio.sleep(self._shared.timing.page_s)
            await self._look_at()

    async def _get_ready(self) -> None:
        replica = self._replica
        assert replica.child is not None
        log = replica.start
        while True:
            for line in replica.child.new_lines():
                log.line(line, self._shared.unix_s())
            if await replica.is_healthy(self._shared.session, timeout_s=2.0):
                break
            await asyncio.sleep(self._shared.timing.look_s)
        log.enter(StartStage.READY, self._shared.unix_s())
        await replica.first_answer(
            self._shared.session, self._shared.model, timeout_s=self._shared.timing.first_answer_s
        )
        await replica.read_page(self._shared.session, timeout_s=2.0)
        now_s = self._shared.unix_s()
        log.end(now_s)
        record = log.record()
        replica.state, replica.ready_s, replica.answered_s = LocalState.READY, now_s, now_s
        await self._cap()
        self._is_ready(replica)
        parts = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in record.stages)
        words = f"{replica.name} serves after {now_s - record.asked_s:.1f} s ({parts})"
        self._shared.diary.tell(EventKind.READY, words, replica)
        self._shared.wake.set()

    async def _cap(self) -> None:
        """Only from its first answer on: a start is not slowed."""
        replica = self._replica
        cores, child = replica.pool.cpu_cores, replica.child
        if cores is None or child is None:
            return
        try:
            name = f"phasewise-{self._shared.state.run[:12]}-{replica.engine}"
            replica.group = await asyncio.to_thread(make_group, name, cores)
            self._shared.save_sessions()
            await asyncio.to_thread(replica.group.hold, child.members())
        except (Unavailable, OSError) as error:
            words = f"{replica.name} is not held to {cores:g} CPUs: {error}"
            self._shared.diary.tell(EventKind.NOT_CAPPED, words, replica)

    async def _look_at(self) -> None:
        replica, front = self._replica, self._shared.front
        assert replica.child is not None
        replica.child.new_lines()
        router_has: float | None = 0.0
        draining = replica.state is LocalState.DRAINING and not replica.ending
        if draining and front is not None:  # before the page: what it sent is there by then
            router_has = await front.has_for(replica.address)
        healthy = await replica.is_healthy(
            self._shared.session, timeout_s=self._shared.timing.answer_s
        )
        fresh = await replica.read_page(
            self._shared.session, timeout_s=self._shared.timing.answer_s
        )
        now_s = self._shared.unix_s()
        if healthy:
            if replica.silent:
                self._shared.diary.tell(
                    EventKind.ANSWERS_AGAIN, f"{replica.name} answers again", replica
                )
            replica.answered_s, replica.silent, replica.refusals = now_s, False, 0
        else:
            replica.refusals = replica.refusals + 1 if healthy is False else 0
            self._note_silence(now_s - (replica.answered_s or now_s))
        if draining and replica.state is LocalState.DRAINING:
            self._look_at_drain(router_has, fresh=fresh, now_s=now_s)

    def _note_silence(self, silent_s: float) -> None:
        replica = self._replica
        assert replica.child is not None
        if silent_s >= self._shared.timing.hung_s or replica.refusals >= 3:
            how = (
                "says that it is not healthy"
                if replica.refusals >= 3
                else f"has not answered for {silent_s:.0f} s"
            )
            replica.why_ending = f"it {how}"
            self._shared.diary.tell(EventKind.HUNG, f"{replica.name} {how}: it is ended", replica)
            self._shared.errands.begin(replica.child.end(grace_s=0.0))
        elif silent_s >= self._shared.timing.silent_s and not replica.silent:
            replica.silent = True
            words = f"{replica.name} has not answered for {silent_s:.0f} s"
            self._shared.diary.tell(EventKind.SILENT, words, replica)

    def _look_at_drain(self, router_has: float | None, *, fresh: bool, now_s: float) -> None:
        replica = self._replica
        if replica.drained:
            return
        front = self._shared.front
        if not fresh or replica.figures.requests != 0.0:
            replica.empty_since_s = None
        elif replica.empty_since_s is None:
            replica.empty_since_s = now_s
        since_s = replica.drain_since_s or now_s
        look = DrainLook(
            forgotten=front is None or front.registrar.forgotten(replica.address),
            router_has=router_has,
            figures=replica.figures if fresh else None,
            empty_for_s=now_s - (replica.empty_since_s or now_s),
        )
        reason = waits_for(look, replica.pool.phase, lease_s=replica.pool.kv_lease_s)
        if reason is not None and now_s - since_s > self._shared.timing.drain_limit_s:
            words = f"{replica.name} is drained no longer: it still waits for {reason}"
            lost, kv = replica.figures.requests, replica.figures.kv_tokens
            self._shared.diary.tell(
                EventKind.DRAINED, words, replica, lost_requests=lost, lost_kv_tokens=kv
            )
            reason = None
        if reason is None:
            replica.drained = True
            self._shared.wake.set()
