"""`phasewise local down`: ends the tier of a folder and everything that it left.

Also what `up` asks first: one tier at a time in a folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from serving.errors import Misconfigured, Unavailable
from serving.local import keeper
from serving.local.run_state import STATE_NAME, read_state, supervisor_of

NEAR_WEIGHTS = "weights"
_ENDS_WITHIN_S = 60.0


def refuse_second(folder: Path) -> None:
    """One tier at a time in a folder; what an earlier one left behind is taken away."""
    state = read_state(folder)
    if state is None:
        return
    pid = supervisor_of(state)
    if pid is not None:
        raise Misconfigured(
            "a local tier is already up here",
            where=str(folder),
            found=f"tier {state.get('tier')} (process {pid})",
            expected="none; `phasewise local down` ends it",
        )
    take_away(folder)


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
    take_away(folder)
    return f"tier {state.get('tier')} is down" + ("" if pid else ": its supervisor was gone")


def remove_near_weights(folder: Path) -> None:
    """What a run has copied near its engines: the next run starts cold."""
    shutil.rmtree(folder / NEAR_WEIGHTS, ignore_errors=True)


def take_away(folder: Path) -> None:
    """Whatever a run left in a folder. Raises `Unavailable` if something stays."""
    remove_near_weights(folder)
    if not keeper.clean(folder.absolute() / STATE_NAME):
        raise Unavailable(f"{folder}: something of the tier could not be ended or removed")
