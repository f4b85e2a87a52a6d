"""`phasewise local down`: ends the tier of a folder and everything that it left.

Also what `up` asks first: one tier at a time in a folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serving.errors import Misconfigured, Unavailable
from serving.local import keeper
from serving.local.run_state import STATE_NAME, read_state, supervisor_of

NEAR_WEIGHTS = "weights"
LOCK_NAME = "lock"
_ENDS_WITHIN_S = 60.0


def make_folder(folder: Path) -> None:
    """The folder of a run; says in one sentence why it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LOCK_NAME).open("a").close()
    except OSError as error:
        raise Misconfigured(
            "a run cannot be written down there",
            where="--folder",
            found=f"{folder} ({error.strerror})",
            expected="a folder that can be made and written",
        ) from error


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Be the one `up` of a folder, from before anything is looked at until the end."""
    make_folder(folder)
    with (folder / LOCK_NAME).open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            refuse_running(folder)
            raise _already_up(folder, "one that begins or ends") from error
        yield


def refuse_running(folder: Path) -> None:
    """One tier at a time in a folder."""
    state = read_state(folder)
    pid = None if state is None else supervisor_of(state)
    if state is not None and pid is not None:
        raise _already_up(folder, f"tier {state.get('tier')} (process {pid})")


def refuse_second(folder: Path) -> None:
    """One tier at a time in a folder; what an earlier one left behind is taken away."""
    refuse_running(folder)
    state = read_state(folder)
    if state is not None:
        take_away(folder, state)


def _already_up(folder: Path, found: str) -> Misconfigured:
    return Misconfigured(
        "a local tier is already up here",
        where=str(folder),
        found=found,
        expected="none; `phasewise local down` ends it",
    )


def down(folder: Path) -> str:
    """End the tier of a folder and everything that it left, however it ended; says what it did."""
    state = read_state(folder)
    if state is None:
        return "nothing is up"
    pid = supervisor_of(state)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        end_s = time.monotonic() + _ENDS_WITHIN_S
        while supervisor_of(state) is not None:
            if time.monotonic() > end_s:
                os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.05)
    take_away(folder, state)
    return f"tier {state.get('tier')} is down" + ("" if pid else ": its supervisor was gone")


def remove_near_weights(folder: Path) -> None:
    """What a run has copied near its engines: the next run starts cold."""
    shutil.rmtree(folder / NEAR_WEIGHTS, ignore_errors=True)


def take_away(folder: Path, state: Mapping[str, Any]) -> None:
    """Whatever a run left in a folder. Raises `Unavailable` if something stays."""
    now = read_state(folder)
    if now is None or now.get("run") == state.get("run"):
        remove_near_weights(folder)
    run = state.get("run")
    own = run if isinstance(run, str) else None
    if not keeper.clean(folder.absolute() / STATE_NAME, run=own, known=state):
        raise Unavailable(f"{folder}: something of the tier could not be ended or removed")
