"""The state file of a local tier: who supervises it, and what must be gone after it.

Written whole, under another name first, so that a reader never sees half of it. Says who is there
and cleans nothing itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving.errors import Misconfigured
from serving.local import keeper

FOLDER = Path(".cache/local")
STATE_NAME = "state.json"


@dataclass(slots=True, kw_only=True)
class RunState:
    """What `down` and the keeper need; `save` after every change.

    `sessions` are the first processes of the run's sessions, `temporary` a folder of its own,
    `started` the clock ticks at which those processes began.
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
    started: dict[int, int | None] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """Where it is written."""
        return self.folder / STATE_NAME

    def save(self) -> None:
        """Write it for others to read."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for pid in self.sessions:
            self.started.setdefault(pid, keeper.start_ticks(pid))
        self.started = {pid: self.started[pid] for pid in self.sessions}
        text = json.dumps(
            {
                **{"run": self.run, "engine": self.engine, "tier": self.tier},
                **{"control": self.control, "router": self.router, "boot": keeper.boot_id()},
                "supervisor": self.supervisor,
                "supervisor_start": keeper.start_ticks(self.supervisor),
                "sessions": [list(pair) for pair in self.started.items()],
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
    """What the last run in this folder has left; `None` if it ended well, or there was none.

    Raises `Misconfigured` about a file that cannot be read as one.
    """
    file = folder / STATE_NAME
    try:
        state = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged(file, error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(file, "no JSON") from error
    if not isinstance(state, dict):
        raise _damaged(file, "no JSON object")
    for name, is_one in _LISTS.items():
        value = state.get(name, [])
        if not isinstance(value, list) or not all(map(is_one, value)):
            raise _damaged(file, f"{name} is {value!r}"[:120])
    return state


def _is_session(value: object) -> bool:
    pair = value if isinstance(value, list) else [value, None]
    return len(pair) == 2 and type(pair[0]) is int and type(pair[1]) in (int, type(None))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_LISTS = {"sessions": _is_session, "cgroups": _is_text, "shared_memory": _is_text}


def _damaged(file: Path, found: str) -> Misconfigured:
    return Misconfigured(
        "the state of the local tier cannot be read",
        where=str(file),
        found=found,
        expected="what `phasewise local up` wrote; remove it once nothing of the tier runs",
    )


def supervisor_of(state: dict[str, Any]) -> int | None:
    """The supervisor's process if it still lives: not another of the same number."""
    pid = state.get("supervisor")
    if not isinstance(pid, int) or state.get("boot") != keeper.boot_id():
        return None
    started = keeper.start_ticks(pid)
    return pid if started is not None and started == state.get("supervisor_start") else None
