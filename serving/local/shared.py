"""What the parts of a supervisor share: who is there, what they tell, where things are kept.

Holds and hands out; it decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from serving.local import keeper
from serving.local.diary import Diary
from serving.local.front import Front
from serving.local.ports import FreePorts
from serving.local.replica import LocalReplica
from serving.local.roster import Roster
from serving.local.run_state import RunState
from serving.local.setup import Launcher, Timing


class Errands:
    """Work that goes on beside everything else, and is waited for at the end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it, and do not wait for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def done(self) -> None:
        """Wait for all that has begun; what it raised is not raised here."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass(slots=True, kw_only=True)
class Shared:
    """One tier's. `wake` lets the supervisor look at once; `stopping` once everything ends."""

    model: str
    launcher: Launcher
    state: RunState
    timing: Timing
    unix_s: Callable[[], float]
    roster: Roster
    diary: Diary
    ports: FreePorts = field(default_factory=FreePorts)
    errands: Errands = field(default_factory=Errands)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    front: Front | None = None
    client: aiohttp.ClientSession | None = None
    stopping: bool = False

    @property
    def session(self) -> aiohttp.ClientSession:
        """The client with which everything is asked; there from the start of the tier on."""
        assert self.client is not None
        return self.client

    @property
    def logs(self) -> Path:
        """The folder of what the processes print."""
        return self.state.folder / "logs"

    def env(self, more: Mapping[str, str]) -> dict[str, str]:
        """What is added to a process's environment: it is found by that afterwards."""
        own = {keeper.MARKER: self.state.run, "TMPDIR": self.state.temporary}
        return {**own, **more}

    def tell_router(self) -> None:
        """Let the router know who serves, because that has changed."""
        if self.front is not None:
            self.front.tell_now()

    def save_sessions(self) -> None:
        """Write down which processes and control groups there are."""
        replicas = self.roster.replicas
        children = [r.child for r in replicas if r.child is not None]
        if self.front is not None and self.front.child is not None:
            children.append(self.front.child)
        self.state.sessions = tuple(child.pid for child in children)
        self.state.cgroups = tuple(str(r.group.folder) for r in replicas if r.group is not None)
        self.state.save()

    def note_shared_memory(self, replica: LocalReplica) -> None:
        """Write down what of /dev/shm its processes have mapped."""
        if replica.child is not None:
            self.state.note_shared_memory(keeper.shared_memory_of(replica.child.members()))
            self.state.save()
