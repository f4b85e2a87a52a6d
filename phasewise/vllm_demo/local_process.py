"""A local tier in a process of its own, as the demo on real engines starts, asks and ends it.

It ends with this process, however that ends: it holds the other end of a pipe.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from serving.errors import Unavailable

_SERVES_WITHIN_S = 1800.0  # with the environment still to be made
_ENDS_WITHIN_S = 60.0
_LOOK_S = 0.25
_LAST_WORDS = 5


class LocalProcess:
    """`phasewise local up`, from `start` to `stop`. `more` are further options of the command."""

    def __init__(
        self,
        tier_file: Path,
        folder: Path,
        *,
        say: Callable[[str], None],
        more: Sequence[str] = (),
    ) -> None:
        self._tier_file, self.folder, self._say, self._more = tier_file, folder, say, more
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._last: list[str] = []
        self._told: asyncio.Future[dict[str, Any]] | None = None
        self.control = ""
        self.router = ""

    async def start(self, *, on_listening: Callable[[], None]) -> None:
        """Until every first replica is ready. Raises Unavailable with the last words if it ends.

        `on_listening` is called once the environment and the model are there and engines start.
        """
        self._told = asyncio.get_running_loop().create_future()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "phasewise", "local", "up", "--headless"),
            *("--tier", str(self._tier_file), "--folder", str(self.folder)),
            "--until-stdin-closes",
            *self._more,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._reader = asyncio.create_task(self._read())
        try:
            async with asyncio.timeout(_SERVES_WITHIN_S):
                told = await self._told
                on_listening()
                self.control, self.router = told["control"], told["router"]
                while not (await self.ask("/status"))["serves"]:
                    if self._process.returncode is not None:
                        raise self._ended()
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError as error:
            raise Unavailable(f"the tier does not serve after {_SERVES_WITHIN_S:g} s") from error

    async def ask(self, path: str) -> Any:
        """An answer of the control endpoint, from JSON. Raises Unavailable."""
        try:
            async with (
                aiohttp.ClientSession(trust_env=False) as session,
                session.get(self.control + path) as answer,
            ):
                return await answer.json()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(f"{self.control}{path} does not answer: {error}") from error

    async def stop(self) -> None:
        """End it; by force if it does not end by itself."""
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_ENDS_WITHIN_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._reader is not None:
            await self._reader

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._told is not None
        while line := (await self._process.stdout.readline()).decode(errors="replace").rstrip():
            if line.startswith("{") and not self._told.done():
                self._told.set_result(json.loads(line))
            else:
                self._last = [*self._last, line][-_LAST_WORDS:]
                self._say(line)
        await self._process.wait()
        if not self._told.done():
            self._told.set_exception(self._ended())

    def _ended(self) -> Unavailable:
        return Unavailable(f"the local tier ended: {' / '.join(self._last) or 'it said nothing'}")
