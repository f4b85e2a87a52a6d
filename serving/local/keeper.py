"""Ends whatever a local tier has left behind. Standard library only: also runs as a script.

A supervisor starts it as `python keeper.py STATE_FILE RUN TEMPORARY` and holds the other end of its
standard input. When that closes, however the supervisor has ended, it ends every process of the
run, takes its control groups, temporary folder and shared memory away, and then the state file.
`down` calls the same function. It never waits for a process to finish its work: that is the
supervisor's.

A process is of the run if it carries the run's marker in its environment, or is in a session that
the run made (vLLM's children overwrite their environment with their titles). The state file says
both; a state file from before the machine's last start names no process.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

MARKER = "PHASEWISE_LOCAL_RUN"
_SHARED_MEMORY = "/dev/shm/"
_PATIENCE_S = 20.0
_READ_EVERY_S = 1.0


def boot_id() -> str:
    """Which start of the machine this is; empty where the system does not say."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def start_ticks(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot: tells it from a later one of its id.

    `None` if there is none, or only what its parent has not yet taken note of.
    """
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def processes_of(run: str, sessions: Iterable[int] = ()) -> tuple[int, ...]:
    """The living processes of a run, but never this one."""
    mark, own = f"{MARKER}={run}".encode(), frozenset(sessions)
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        fields = _stat(int(name))
        if fields is None or fields[0] in "ZX":
            continue
        if int(fields[3]) in own or (run and mark in _environment(name).split(b"\0")):
            found.append(int(name))
    return tuple(found)


def children_of(parent: int) -> tuple[int, ...]:
    """The living processes that a process has started itself."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        fields = _stat(int(name)) if name.isdecimal() else None
        if fields is not None and fields[0] not in "ZX" and int(fields[1]) == parent:
            found.append(int(name))
    return tuple(found)


def shared_memory_of(pids: Iterable[int]) -> frozenset[str]:
    """The files in /dev/shm that processes have mapped and that still have a name."""
    found: set[str] = set()
    for pid in pids:
        with suppress(OSError), open(f"/proc/{pid}/maps", errors="replace") as maps:
            for line in maps:
                path = line.rstrip("\n").partition(_SHARED_MEMORY)[2]
                if path and not path.endswith(" (deleted)"):
                    found.add(_SHARED_MEMORY + path)
    return frozenset(found)


def remove_shared_memory(paths: Iterable[str]) -> None:
    """Take those files away that no process has mapped any more."""
    left = {path for path in paths if path.startswith(_SHARED_MEMORY) and os.path.exists(path)}
    if not left:
        return
    used = shared_memory_of(int(name) for name in os.listdir("/proc") if name.isdecimal())
    for path in left - used:
        with suppress(OSError):
            os.unlink(path)


def kill_all(run: str, sessions: Iterable[int] = (), *, patience_s: float = _PATIENCE_S) -> bool:
    """SIGKILL to every process of the run until none is left. False if some would not go."""
    own = tuple(sessions)
    end_s = time.monotonic() + patience_s
    while pids := processes_of(run, own):
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end_s:
            return False
        time.sleep(0.02)
    return True


def readable(state_file: Path) -> dict[str, Any] | None:
    """What a state file says; `None` if it is not there, or damaged."""
    try:
        state = json.loads(state_file.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return state if isinstance(state, dict) else None


def sessions_of(state: Mapping[str, Any]) -> tuple[int, ...]:
    """The run's sessions: not one whose number another process has by now.

    Each is a number with the start of its first process; a number alone is from an older version.
    """
    found: list[int] = []
    for each in _listed(state, "sessions"):
        if _is_number(each):
            found.append(each)
        elif isinstance(each, list) and len(each) == 2 and _is_number(each[0]):
            now = start_ticks(each[0])
            if now is None or now == each[1]:
                found.append(each[0])
    return tuple(found)


def clean(
    state_file: Path,
    *,
    run: str | None = None,
    temporary: str = "",
    known: Mapping[str, Any] | None = None,
) -> bool:
    """Everything that the state file names, and then the file. True if nothing is left.

    Where a run is given, only what is of that one: if the file is gone, damaged or of another run,
    it stays as it is, and what is `known` of the run, or its marker and folder, are gone by.
    """
    state = readable(state_file)
    if run is not None and (state is None or state.get("run") != run):
        return _end(known or {"run": run, "temporary": temporary, "boot": boot_id()})
    if state is None:
        return True
    done = _end(state)
    if done:
        with suppress(OSError):
            state_file.unlink()
    return done


def _end(state: Mapping[str, Any]) -> bool:
    run, temporary = (_text(state.get(name)) for name in ("run", "temporary"))
    done = True
    shared = {path for path in _listed(state, "shared_memory") if isinstance(path, str)}
    if state.get("boot") == boot_id():
        sessions = sessions_of(state)
        shared |= shared_memory_of(processes_of(run, sessions))
        done = kill_all(run, sessions)
    remove_shared_memory(path for path in shared if "\0" not in path)
    for folder in _listed(state, "cgroups"):
        if isinstance(folder, str) and "\0" not in folder:
            done = _remove_group(folder) and done
    if os.path.basename(temporary).startswith("phasewise-"):
        shutil.rmtree(temporary, ignore_errors=True)
    return done


def _listed(state: Mapping[str, Any], name: str) -> list[Any]:
    found = state.get(name)
    return found if isinstance(found, list) else []


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _text(value: object) -> str:
    return value if isinstance(value, str) and "\0" not in value else ""


def _remove_group(folder: str) -> bool:
    end_s = time.monotonic() + 2.0
    while os.path.isdir(folder):
        try:
            os.rmdir(folder)
        except OSError:
            if time.monotonic() > end_s:
                return False
            time.sleep(0.02)
    return True


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on: state, parent, group, session, …"""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None


def _environment(name: str) -> bytes:
    with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
        return file.read()
    return b""


def main(arguments: list[str]) -> int:
    """Wait for the end of standard input, then clean."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends last, and by itself
    file, run, temporary = Path(arguments[0]), arguments[1], arguments[2]
    known: dict[str, Any] | None = None
    while True:
        if select.select([0], [], [], _READ_EVERY_S)[0] and not os.read(0, 4096):
            break
        state = readable(file)
        known = state if state is not None and state.get("run") == run else known
    return 0 if clean(file, run=run, temporary=temporary, known=known) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
