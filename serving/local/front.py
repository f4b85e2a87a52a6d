"""The router of a local tier: started, watched, started again; told at once who serves.

It knows nothing of pools or plans: whoever owns it says which workers there are. Once it has died,
its address is taken over here: what comes is held until the next router listens, at another port,
and passed to that from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import aiohttp

from serving.errors import PhasewiseError
from serving.local.child import Child
from serving.local.figures import router_in_flight
from serving.local.registration import PING_S, Registrar
from serving.local.replica import fetch_text
from serving.local.stand_in import StandIn
from serving.types import Phase

Workers = Callable[[], Iterable[tuple[str, Phase]]]
_LONGEST_WAIT_S = 30.0
_HEARS_WITHIN_S = 0.1


class RouterCommand(Protocol):
    """How the router is started."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line."""

    @property
    def env(self) -> Mapping[str, str]:
        """What is added to the environment."""


class Front:
    """One router, at the same addresses for as long as the tier is up.

    `again` is how it is started after it has died: it then listens at `again_address`.
    `on_ready` is told of each start that came up, `on_lost` in words of each end that was not
    asked for, with what the router had under way (`None`: not known).
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        command: RouterCommand,
        again: RouterCommand,
        *,
        address: str,
        again_address: str,
        metrics_address: str,
        discovery_address: str,
        workers: Workers,
        log_file: Path,
        env: Mapping[str, str],
        on_spawn: Callable[[Child | None], None],
        on_ready: Callable[[], None],
        on_lost: Callable[[str, float | None], None],
        hung_s: float,
        look_s: float,
        start_limit_s: float = 60.0,
    ) -> None:
        self.address, self._again_address = address, again_address
        self.metrics_address = metrics_address
        self._session, self._command, self._again = session, command, again
        self._workers, self._log_file, self._env = workers, log_file, env
        self._on_spawn, self._on_ready, self._on_lost = on_spawn, on_ready, on_lost
        self._hung_s, self._look_s, self._start_limit_s = hung_s, look_s, start_limit_s
        self.registrar = Registrar(discovery_address)
        self.child: Child | None = None
        self.ready = False
        self._door: StandIn | None = None
        self._under_way: dict[str, float] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.restarts = 0

    def start(self) -> None:
        """Begin to keep the router up and informed."""
        self._tasks = [asyncio.create_task(self._keep()), asyncio.create_task(self._tell())]

    async def stop(self, *, grace_s: float) -> None:
        """End the router; nobody is told."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._door is not None:
            await self._door.stop(grace_s=0.0)
        if self.child is not None:
            await self.child.end(grace_s=grace_s)
        self.registrar.close()

    def tell_now(self) -> None:
        """Name the workers at once, because they have changed."""
        self.registrar.tell(self._workers())

    async def has_for(self, address: str) -> float | None:
        """Requests that it has under way for a worker; 0 while it is dead, `None` if silent."""
        if self.child is None or self.child.code is not None:
            return 0.0
        page = await fetch_text(
            self._session, f"http://{self.metrics_address}/metrics", timeout_s=2.0
        )
        if page is None:
            return None
        self._under_way = dict(router_in_flight(page))
        return self._under_way.get(address, 0.0)

    def had_for(self, address: str) -> float | None:
        """The same as last seen, without asking."""
        return None if self._under_way is None else self._under_way.get(address, 0.0)

    async def _tell(self) -> None:
        while True:
            self.tell_now()  # often while it starts: it refuses everything until it knows somebody
            await asyncio.sleep(PING_S / 2.0 if self.ready else 0.1)

    async def _keep(self) -> None:
        failures = 0
        while True:
            was_ready, had = False, None
            try:
                code = await self._live()
                was_ready, had, self.ready = self.ready, self._had(), False
                if was_ready:
                    await self._open_door()
                why = f"the router has ended (exit status {code})"
            except (PhasewiseError, OSError) as error:
                why, self.ready = f"the router cannot be kept: {error}", False
            if self.child is not None:
                await self.child.end(grace_s=0.0)
            with suppress(OSError):
                self._on_spawn(None)
            self._under_way = None
            self._on_lost(why, had)
            failures = 0 if was_ready else failures + 1
            self.restarts += 1
            if failures:
                await asyncio.sleep(min(_LONGEST_WAIT_S, 0.5 * 2.0 ** min(failures, 10)))

    async def _live(self) -> int:
        """One router, from its start to its end; its exit status."""
        command = self._command if self._door is None else self._again
        self.child = None
        self.child = await Child.spawn(command.argv, env=self._env, log_file=self._log_file)
        self._on_spawn(self.child)
        watch = asyncio.create_task(self._watch(self.child))
        try:
            return await self.child.ended()
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch

    def _had(self) -> float | None:
        return None if self._under_way is None else sum(self._under_way.values())

    async def _open_door(self) -> None:
        """Take the dead router's address, unless it has been taken before."""
        if self._door is not None:
            return
        port, behind = (int(a.rpartition(":")[2]) for a in (self.address, self._again_address))
        door = StandIn(
            port, living=lambda: behind if self.ready else None, hold_s=self._start_limit_s
        )
        if await door.start():
            self._door = door

    async def _watch(self, child: Child) -> None:
        """Say when it is up; end it when it no longer answers."""
        loop = asyncio.get_running_loop()
        began_s = last_s = loop.time()
        limit_s = self._start_limit_s
        while True:
            page = await fetch_text(
                self._session, f"http://{self.metrics_address}/metrics", timeout_s=2.0
            )
            alive = page is not None and await self._listens()
            if alive and page is not None:
                self._under_way = dict(router_in_flight(page))
                last_s, limit_s = loop.time(), self._hung_s
                if not self.ready and await self._has_heard(began_s):
                    self.ready = True
                    self._on_ready()
            elif loop.time() - last_s > limit_s:
                await child.end(grace_s=0.0)
                return
            await asyncio.sleep(self._look_s if self.ready else 0.1)

    async def _has_heard(self, since_s: float) -> bool:
        """Whether it has been told of a worker, where there is one: till then it refuses all."""
        self.tell_now()
        told_s = max(self.registrar.last_told.values(), default=0.0)
        if told_s < since_s and any(True for _ in self._workers()):
            return False
        await asyncio.sleep(_HEARS_WITHIN_S)
        return True

    async def _listens(self) -> bool:
        address = self.address if self._door is None else self._again_address
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(2.0):
                _, writer = await asyncio.open_connection(host, int(port))
        except (TimeoutError, OSError):
            return False
        writer.close()
        return True
