"""Keeps a local tier as it is wanted: starts, watches, drains, flips and replaces engines.

What to do is told by `reconcile` and done by `doing`; what happens to processes is turned into
events. Everything that it starts carries the run's marker and is written down in the run's state
file, so that another process can end all of it when this one is killed.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress

import aiohttp

from serving.errors import PhasewiseError
from serving.local import keeper
from serving.local.diary import Diary
from serving.local.doing import Doing
from serving.local.ends import Ends
from serving.local.events import Event, EventKind
from serving.local.front import Front
from serving.local.life import Life
from serving.local.reconcile import reconcile
from serving.local.replica import LocalReplica, PoolSetup
from serving.local.roster import Roster
from serving.local.run_state import RunState
from serving.local.setup import Counts, Launcher, Timing
from serving.local.shared import Shared
from serving.local.startups import StartRecord
from serving.local.way_in import WayIn
from serving.types import StartKind


class LocalTier:
    """One tier of real processes, from `start` to `stop`. `unix_s` tells the time of events.

    `on_broken` is called if it can no longer look after its processes; `stop` then raises why.
    """

    def __init__(
        self,
        *,
        name: str,
        model: str,
        pools: Sequence[PoolSetup],
        launcher: Launcher,
        state: RunState,
        unix_s: Callable[[], float],
        timing: Timing | None = None,
        on_event: Callable[[Event], None] | None = None,
        on_broken: Callable[[], object] = lambda: None,
    ) -> None:
        self.name, self.model = name, model
        self._state = state
        self._shared = Shared(
            model=model,
            launcher=launcher,
            state=state,
            timing=timing or Timing(),
            unix_s=unix_s,
            roster=Roster(pools),
            diary=Diary(unix_s=unix_s, on_event=on_event),
        )
        self._on_broken = on_broken
        self._ends = Ends(self._shared)
        self._way_in = WayIn(self._shared)
        self._doing = Doing(self._shared, self._ends, begin_life=self._begin_life)
        self._looker: asyncio.Task[None] | None = None
        self._keeper: asyncio.subprocess.Process | None = None

    # --- from outside

    async def start(self) -> None:
        """Start the keeper, the router, and what the pools should have at first."""
        self._state.temporary = tempfile.mkdtemp(prefix="phasewise-")
        self._state.save()
        self._keeper = await keeper_process(self._state)
        self._shared.client = aiohttp.ClientSession()
        self._way_in.start_router()
        self._looker = asyncio.create_task(self._look_for_ever())
        self._looker.add_done_callback(lambda _: self._shared.stopping or self._on_broken())

    async def stop(self) -> None:
        """End everything that was started, and take the state file away."""
        shared = self._shared
        shared.stopping = True
        broken: BaseException | None = None
        if self._looker is not None:
            self._looker.cancel()
            (broken,) = await asyncio.gather(self._looker, return_exceptions=True)
        try:
            if shared.front is not None:
                await shared.front.stop(grace_s=shared.timing.grace_s)
        finally:
            await self._stop_rest()
        if isinstance(broken, Exception):
            raise broken

    async def _stop_rest(self) -> None:
        shared, state = self._shared, self._state
        for replica in shared.roster.replicas:
            replica.ending, replica.why_ending = True, "the tier ends"
        try:
            await asyncio.gather(*(self._end_child(each) for each in shared.roster.replicas))
            await shared.errands.done()
        finally:
            if shared.client is not None:
                await shared.client.close()
            if self._keeper is not None and self._keeper.stdin is not None:
                self._keeper.stdin.close()  # what it finds, it ends; then it ends
                await self._keeper.wait()
            await asyncio.to_thread(
                keeper.clean, state.file, run=state.run, temporary=state.temporary
            )

    async def __aenter__(self) -> LocalTier:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def note_control(self, address: str) -> None:
        """Where its control endpoint listens, for the state file."""
        self._state.control = address

    @property
    def pools(self) -> dict[str, PoolSetup]:
        """Its pools by name."""
        return self._shared.roster.pools

    @property
    def events(self) -> list[Event]:
        """What has happened, oldest first."""
        return self._shared.diary.events

    @property
    def front(self) -> Front | None:
        """Its router; `None` in a tier without."""
        return self._shared.front

    @property
    def healthy(self) -> bool:
        """False once it no longer looks after its processes."""
        return self._looker is not None and not self._looker.done()

    @property
    def serves(self) -> bool:
        """True from the first answer through the router on."""
        return self._way_in.serves

    def replicas(self) -> tuple[LocalReplica, ...]:
        """Those that live, oldest first."""
        return tuple(self._shared.roster.replicas)

    def pool_counts(self, name: str) -> Counts:
        """The counts of one pool; a replica that will flip there counts as starting."""
        return self._shared.roster.counts(name)

    def scale(self, name: str, replicas: int) -> None:
        """Set what a pool should have; starts that were given up are tried again."""
        roster = self._shared.roster
        roster.failed.pop(name, None)
        if roster.desired[name] != replicas:
            words = f"{name} should have {replicas} replicas, not {roster.desired[name]}"
            if replicas > self.pools[name].most:
                words += f"; the tier allows it {self.pools[name].most}"
            roster.desired[name] = replicas
            self._shared.diary.tell(EventKind.SCALED, words, pool=name)
        self._shared.wake.set()

    def next_start(self, pool: str) -> StartKind | None:
        """Whether the next start of a pool fetches its weights, where that is known."""
        return self._shared.launcher.next_start(pool)

    def startups(self) -> tuple[StartRecord, ...]:
        """All starts so far, those that still go on last."""
        return self._shared.roster.startups()

    # --- looking

    async def _look_for_ever(self) -> None:
        shared = self._shared
        while True:
            shared.wake.clear()
            await self._look()
            with suppress(TimeoutError):  # asyncio.wait_for would lose a cancellation here
                async with asyncio.timeout(shared.timing.look_s):
                    await shared.wake.wait()

    async def _look(self) -> None:
        shared, now_s = self._shared, self._shared.unix_s()
        if self._keeper is not None and self._keeper.returncode is not None:
            words = "the keeper has ended; another takes its place"
            shared.diary.tell(EventKind.KEEPER_LOST, words)
            self._keeper = await keeper_process(self._state)
        views = [replica.view for replica in shared.roster.replicas]
        wanted, failed = shared.roster.wanted(), shared.roster.failed
        for action in reconcile(wanted, views, now_s=now_s, failed=failed):
            self._doing.do(action, now_s)

    # --- the life of one replica

    def _begin_life(self, replica: LocalReplica) -> None:
        replica.task = asyncio.create_task(self._live(replica))

    async def _live(self, replica: LocalReplica) -> None:
        """From wanted to ended."""
        life = Life(replica, self._shared, is_ready=self._is_ready)
        try:
            await life.spawn()
        except (PhasewiseError, OSError) as error:
            if replica in self._shared.roster.replicas:
                self._ends.failed_start(replica, str(error))
            return
        assert replica.child is not None
        work = asyncio.create_task(life.serve())
        ended = asyncio.create_task(replica.child.ended())
        try:
            await asyncio.wait([ended, work], return_when=asyncio.FIRST_COMPLETED)
            if work.done() and (wrong := work.exception()) is not None:
                replica.why_ending = f"nobody could look after it: {wrong!r}"
                await replica.child.end(grace_s=0.0)
            code = await ended
        finally:
            for task in (work, ended):
                task.cancel()
            await asyncio.gather(work, ended, return_exceptions=True)
        replica.child.new_lines()
        self._ends.ended(replica, code)

    def _is_ready(self, replica: LocalReplica) -> None:
        """It has given its first answer."""
        shared = self._shared
        shared.roster.starts.append(replica.start.record())
        shared.roster.failed.pop(replica.pool.name, None)
        shared.tell_router()
        shared.note_shared_memory(replica)
        shared.errands.begin(self._way_in.try_whole())

    async def _end_child(self, replica: LocalReplica) -> None:
        if replica.child is not None:
            await replica.child.end(grace_s=self._shared.timing.grace_s)
        if replica.task is not None:
            replica.task.cancel()
            with suppress(asyncio.CancelledError):
                await replica.task
        if replica.group is not None:
            await asyncio.to_thread(replica.group.remove)


async def keeper_process(state: RunState) -> asyncio.subprocess.Process:
    """A process that ends what a run has started as soon as this one is gone."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", keeper.__file__, str(state.file.absolute())),
        *(state.run, state.temporary),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
