"""`phasewise compare-engines`: record if asked, fit, play again, compare, write, and say what came.

Wires only. What is started for a recording is ended with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from phasewise.reality.compared import Compared, compared, worst, write_profile
from phasewise.reality.comparing import Row, mean_of
from phasewise.reality.recording import read_recording, write_recording
from serving.errors import Misconfigured

PROFILE_FILE = "qwen3-tiny-cpu.yaml"
REPORT_FILE = "simulator-against-reality.md"
OUT = Path("out")
WORST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """The options of the command, as given."""

    recording: Path
    tier_file: Path | None = None
    control: str | None = None
    seed: int = 1
    profile_file: Path | None = None
    report_file: Path | None = None


def compare_engines(asked: CompareRequest, console: Console) -> None:
    """Do it all; raises Misconfigured or Unavailable."""
    if asked.tier_file is not None:
        # engines are heavy to import and not wanted for a kept recording
        from phasewise.reality.pair import recorded

        recording = asyncio.run(
            recorded(asked.tier_file, control=asked.control, seed=asked.seed, say=console.print)
        )
        write_recording(asked.recording, recording)
        console.print(f"recorded: {asked.recording}")
    elif asked.control is not None:
        raise Misconfigured(
            "a running tier needs its document beside it",
            where="--control",
            found="no --tier",
            expected="--tier FILE",
        )
    result = compared(read_recording(asked.recording))
    profile_file = asked.profile_file or OUT / PROFILE_FILE
    report_file = asked.report_file or OUT / REPORT_FILE
    profile_file.parent.mkdir(parents=True, exist_ok=True)
    write_profile(profile_file, result.profile)
    report_file.parent.mkdir(parents=True, exist_ok=True)
    report_file.write_text(result.text(profile_file=profile_file.name), encoding="utf-8")
    console.print(_table(result))
    console.print(f"profile: {profile_file}\nevery series: {report_file}")


def _table(result: Compared) -> Table:
    differing = [row for row in result.rows if row.differences]
    table = Table(title=f"{len(differing)} series differ in kind; the furthest means")
    for heading in ("target", "series", "live", "simulated", "ratio"):
        table.add_column(heading, justify="left" if heading in ("target", "series") else "right")
    for row in worst(result.rows, number=WORST):
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> tuple[str, ...]:
    name = row.spec.name + "".join(f" {value}" for _, value in row.split)
    numbers = (mean_of(row.live), mean_of(row.simulated))
    return row.target, name, *(f"{number:.4g}" for number in numbers), f"{row.mean_ratio:.2f}"
