"""Takes the place of a dead engine at its address while the router still chooses it.

The router forgets a worker only seconds after it was last told of it, and a request that it sends
there meanwhile would fail. It chooses prefill and decode when a request comes, so one that waits
for its prefill comes to a dead decode long after the router has forgotten that. A stand-in listens
at the dead one's port and passes what comes to a living engine of the same pool, byte by byte; if
there is none, it holds what comes until there is. What the dead one had is lost all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

_PIECE_BYTES = 65_536
_LOOK_S = 0.1


class StandIn:
    """Listens at one port for another engine, until it is stopped and its last answer is out.

    `living` names the port of an engine that serves now, if one does; what comes is held for
    `hold_s` until it does, then dropped.
    """

    def __init__(
        self,
        port: int,
        *,
        living: Callable[[], int | None],
        hold_s: float = 0.0,
        host: str = "127.0.0.1",
    ) -> None:
        self._host, self.port, self._living, self._hold_s = host, port, living, hold_s
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.passed = self.dropped = 0

    async def start(self) -> bool:
        """Listen; false if the port cannot be had."""
        try:
            self._server = await asyncio.start_server(self._take, self._host, self.port)
        except OSError:
            return False
        return True

    async def stop(self, *, grace_s: float) -> None:
        """Take nothing new, and give what is open so long to end."""
        if self._server is not None:
            self._server.close()
        if self._open:
            await asyncio.wait(self._open, timeout=grace_s)
        for task in list(self._open):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            for_port = await self._held()
            if for_port is None:
                self.dropped += 1
            else:
                self.passed += 1
                await self._pass_on(reader, writer, for_port)
        finally:
            self._open.discard(task)
            writer.close()

    async def _held(self) -> int | None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._hold_s
        while (port := self._living()) is None and loop.time() < end_s:
            await asyncio.sleep(_LOOK_S)
        return port

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, for_port: int
    ) -> None:
        try:
            there, back = await asyncio.open_connection(self._host, for_port)
        except OSError:
            return
        try:
            asked = asyncio.create_task(_copy(reader, back))
            answered = asyncio.create_task(_copy(there, writer))
            try:
                await asyncio.wait([asked, answered], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (asked, answered):
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
        finally:
            back.close()


async def _copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(_PIECE_BYTES):
            to.write(piece)
            await to.drain()
