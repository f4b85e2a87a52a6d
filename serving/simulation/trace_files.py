"""The request traces that come with the package: their names, and where their files are.

Reading them is `serving.simulation.traffic`'s work. Sources and licences: `traces/SOURCES.md`.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from serving.errors import Misconfigured

TRACE_DESCRIPTIONS: dict[str, str] = {
    "azure2023_conv": "a chat service, 58 min; input to output drifts 3.3, 12.5, 3 in the hour",
    "azure2023_code": "a coding service, 57 min; bursts of minutes, long prompts, short answers",
    "mixshift4h": "both of these mixed under a written schedule, 4 h; the mix steps and swings",
}
TRACES: tuple[str, ...] = tuple(TRACE_DESCRIPTIONS)


def packaged_trace(name: str) -> Path:
    """The gzip CSV of a packaged trace: times in seconds, lengths in tokens."""
    if name not in TRACE_DESCRIPTIONS:
        raise Misconfigured(
            "no such trace",
            where="packaged traces",
            found=repr(name),
            expected=f"one of {', '.join(TRACES)}",
        )
    return Path(str(files("serving.simulation"))) / "traces" / f"{name}_req.csv.gz"
