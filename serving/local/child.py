"""One process of a local tier, with its children: started, its log read, ended as a whole.

Each is the first of its own session, so that all that come from it can be found and ended with it,
whatever they call themselves. Decides nothing about when.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from serving.errors import Unavailable
from serving.local import keeper

_MOST_LOG_BYTES = 1_000_000


class Child:
    """A process and its log file; `code` is its exit status once it has ended, as a shell says."""

    def __init__(self, process: asyncio.subprocess.Process, log_file: Path) -> None:
        self._process = process
        self._log_file = log_file
        self._read_to = 0
        self._rest = ""
        self.last_line = ""
        self.pid: int = process.pid

    @classmethod
    async def spawn(cls, argv: Sequence[str], *, env: Mapping[str, str], log_file: Path) -> Child:
        """Start it, its output at the end of the log file. Raises `Unavailable` if it cannot."""
        log_file.parent.mkdir(parents=True, exist_ok=True)
        with log_file.open("wb") as log:
            try:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    env={**os.environ, **env},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise Unavailable(f"{argv[0]} cannot be started: {error.strerror}") from error
        return cls(process, log_file)

    @property
    def code(self) -> int | None:
        """Exit status; negative for the signal that ended it; `None` while it lives."""
        return self._process.returncode

    async def ended(self) -> int:
        """Wait until the first process has ended; its children may live on."""
        return await self._process.wait()

    def members(self) -> tuple[int, ...]:
        """All living processes that came from it."""
        return keeper.processes_of("", [self.pid])

    def new_lines(self) -> list[str]:
        """What it has written since the last call, in whole lines."""
        try:
            with self._log_file.open("rb") as log:
                log.seek(self._read_to)
                found = log.read(_MOST_LOG_BYTES)
        except OSError:
            return []
        self._read_to += len(found)
        *lines, self._rest = (self._rest + found.decode(errors="replace")).split("\n")
        told = [line for line in lines if line.strip()]
        if told:
            self.last_line = told[-1].strip()[-200:]
        return told

    async def end(self, *, grace_s: float) -> None:
        """SIGTERM to the first process; after the grace SIGKILL to all that is left of it."""
        if grace_s > 0.0 and self.code is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._process.wait()
        await asyncio.to_thread(keeper.kill_all, "", [self.pid])
        await self._process.wait()
