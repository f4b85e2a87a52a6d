"""From a recording to a profile, a simulated run, rows and the page of documentation.

Needs no engine. Writes what it is asked to write, and returns the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phasewise.reality.comparing import Row, compare
from phasewise.reality.levelling import levelled
from phasewise.reality.recording import Recording
from phasewise.reality.report import report
from phasewise.reality.run import Run, run_of
from phasewise.reality.simulated import Means, simulated_pages
from serving.dialects import vllm
from serving.dialects.page import label
from serving.errors import Misconfigured
from serving.simulation.fitting import fit_profile
from serving.simulation.profile import EngineProfile, parse_profile, profile_text
from serving.types import Phase, ReplicaReading

PROFILE_NAME = "qwen3-tiny-cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What came out: the profile, both runs, and every row."""

    recording: Recording
    profile: EngineProfile
    live: Run
    simulated: Run
    rows: tuple[Row, ...]

    def text(self, *, profile_file: str) -> str:
        """The page of documentation."""
        return report(
            self.recording,
            self.profile,
            self.live,
            self.simulated,
            self.rows,
            profile_file=profile_file,
        )


def compared(recording: Recording) -> Compared:
    """Fit, play again, compare. Raises Misconfigured where the recording tells too little."""
    live = run_of(recording.pages)
    profile = fitted(recording, live)
    simulated = run_of(
        simulated_pages(recording, profile, block_size_tokens=_block_size_tokens(live))
    )
    return Compared(
        recording=recording,
        profile=profile,
        live=live,
        simulated=simulated,
        rows=compare(live, simulated),
    )


def fitted(recording: Recording, live: Run) -> EngineProfile:
    """The profile of the recording's engines, with the digits that its file keeps.

    So the last bits of a fit, which differ between machines, do not move a simulated event.
    """
    about = recording.about
    profile = fit_profile(
        name=PROFILE_NAME,
        model=about.model,
        accelerator=about.machine,
        prefill=readings(live, Phase.PREFILL),
        decode=readings(live, Phase.DECODE),
        prompts=[request.input_tokens for request in recording.requests],
        start_s=about.start_s,
        source=f"{about.engine} on {about.machine}, {len(recording.requests)} requests",
    )
    profile = levelled(
        profile, recording, _live_means(live), block_size_tokens=_block_size_tokens(live)
    )
    return parse_profile(profile_text(profile, comment=""), name=PROFILE_NAME)


def _live_means(live: Run) -> Means:
    def mean(target: str, name: str) -> float | None:
        grown = live.grown(target, name)
        return grown.sum / grown.count if grown is not None and grown.count else None

    return Means(
        prefill_s=mean(Phase.PREFILL.value, "vllm:request_prefill_time_seconds"),
        gap_s=mean(Phase.DECODE.value, "vllm:inter_token_latency_seconds"),
        transfer_s=mean(Phase.DECODE.value, "vllm:nixl_xfer_time_seconds"),
    )


def readings(run: Run, phase: Phase) -> list[ReplicaReading]:
    """The pages of one replica in our words."""
    return [
        vllm.replica_reading(read.page, replica=phase.value, at_s=read.at_s, phase=phase)
        for read in run.pages[phase.value]
    ]


def write_profile(path: Path, profile: EngineProfile) -> None:
    """Keep the profile as the simulator's own files are."""
    comment = (
        "A tiny generated model on a machine without accelerator, fitted to a live pair by\n"
        "`phasewise compare-engines`. It shows mechanism, not the speed of an accelerator."
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(profile_text(profile, comment=comment), encoding="utf-8")


def worst(rows: Sequence[Row], *, number: int) -> list[Row]:
    """The rows whose means are furthest apart, by the factor."""

    def factor(row: Row) -> float:
        ratio = row.mean_ratio
        return max(ratio, 1.0 / ratio) if ratio else 0.0

    return sorted((row for row in rows if row.mean_ratio), key=factor, reverse=True)[:number]


def _block_size_tokens(live: Run) -> int:
    for labels in live.last(Phase.DECODE.value).samples.get(vllm.CACHE_CONFIG, {}):
        size = label(labels, "block_size")
        if size is not None and size.isascii() and size.isdecimal() and int(size) > 0:
            return int(size)
    raise Misconfigured(
        "the recording does not tell how large a KV block is",
        where=vllm.CACHE_CONFIG,
        found="no block_size",
        expected="tokens in a block",
    )
