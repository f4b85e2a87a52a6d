"""The state file of a local tier: who supervises it, and what must be gone after it.

Written whole, under another name first, so that a reader never sees half of it. Says who is there
and cleans nothing itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.local import keeper

FOLDER = Path(".cache/local")
STATE_NAME = "state.json"


@dataclass(slots=True, kw_only=True)
class RunState:
    """What `down` and the keeper need; `save` after every change.

    `sessions` are the first processes of the run's sessions, `temporary` a folder of its own.
    """

    folder: Path
    run: str
    engine: str
    tier: str
    control: str = ""
    supervisor: int = 0
    sessions: tuple[int, ...] = ()
    cgroups: tuple[str, ...] = ()
    shared_memory: tuple[str, ...] = ()
    temporary: str = ""
    router: str | None = None

    @property
    def file(self) -> Path:
        """Where it is written."""
        return self.folder / STATE_NAME

    def save(self) -> None:
        """Write it for others to read."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(
            {
                **{"run": self.run, "engine": self.engine, "tier": self.tier},
                **{"control": self.control, "router": self.router, "boot": keeper.boot_id()},
                "supervisor": self.supervisor,
                "supervisor_start": keeper.start_ticks(self.supervisor),
                "sessions": list(self.sessions),
                "cgroups": list(self.cgroups),
                "shared_memory": sorted(self.shared_memory),
                "temporary": self.temporary,
            },
            indent=1,
        )
        part = self.file.with_suffix(".part")
        part.write_text(text + "\n")
        os.replace(part, self.file)

    def note_shared_memory(self, paths: Iterable[str]) -> None:
        """Remember what processes of the run have mapped; forget what is gone."""
        known = tuple(p for p in {*self.shared_memory, *paths} if os.path.exists(p))
        self.shared_memory = known


def read_state(folder: Path) -> dict[str, Any] | None:
    """What the last run in this folder has left; `None` if it ended well, or there was none."""
    try:
        state = json.loads((folder / STATE_NAME).read_text())
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) else None


def supervisor_of(state: dict[str, Any]) -> int | None:
    """The supervisor's process if it still lives: not another of the same number."""
    pid = state.get("supervisor")
    if not isinstance(pid, int) or state.get("boot") != keeper.boot_id():
        return None
    started = keeper.start_ticks(pid)
    return pid if started is not None and started == state.get("supervisor_start") else None
