"""`phasewise replay`: folds a ledger again and says where it comes out otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autoscaler.ledger import Ledger
from autoscaler.replay import replay
from phasewise.times import when

_SHOWN = 20


def replay_file(path: Path, say: Callable[[str], None]) -> int:
    """0 if every tick comes out the same, 1 if not; says each difference and a closing line."""
    ledger = Ledger(path, read_only=True)
    ticks = different = 0
    try:
        for replayed in replay(ledger):
            ticks += 1
            if replayed.differences:
                different += 1
                if different <= _SHOWN:
                    for difference in replayed.differences:
                        say(f"tick {replayed.epoch} at {when(replayed.at_s)}: {difference}")
    finally:
        ledger.close()
    say(f"{path}: {ticks} ticks replayed, {different} come out otherwise")
    return 1 if different else 0
