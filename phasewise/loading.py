"""`phasewise load`: plays a trace or mixes against a server, and ends with one table.

Wires only: schedules, sending and counting are in `serving/load/`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from phasewise.comparison import trace_path
from serving.errors import Misconfigured
from serving.load.asking import Prompts
from serving.load.generator import LoadSettings, check_url, play
from serving.load.outcomes import (
    Outcomes,
    RequestOutcome,
    attainment_ratio,
    json_lines,
    percentile,
    totals,
)
from serving.load.schedule import MAX_SECONDS, Planned, Scaling, mixed, parse_mix, scaled
from serving.simulation.traffic import load_trace
from serving.types import Slo

REFUSALS_TO_GIVE_UP = 5
LATE_S = 0.1
"""A sender whose p99 is later than this did not send what was planned."""
_LINE_EVERY_S = 10.0
_SHARES = ("p50", 0.5), ("p90", 0.9), ("p99", 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """The options of the command, as given; `mixes` take the trace's place."""

    url: str
    model: str
    trace: str = "azure2023_conv"
    scaling: Scaling = field(default_factory=Scaling)
    mixes: tuple[str, ...] = ()
    seed: int = 1
    shared_prefix_ratio: float = 0.0
    timeout_s: float = 300.0
    requests_file: Path | None = None
    ttft_s: float = 2.5
    itl_s: float = 0.05
    headless: bool = False


def run_load(asked: LoadRequest, console: Console) -> None:
    """Play it and draw the table. Raises Misconfigured, or Unavailable if the target refuses."""
    slo = _checked(asked)
    schedule = schedule_of(asked)
    settings = LoadSettings(
        model=asked.model,
        prompts=Prompts(seed=asked.seed, shared_ratio=asked.shared_prefix_ratio),
        timeout_s=asked.timeout_s,
        give_up_after=REFUSALS_TO_GIVE_UP,
    )
    screen = _Screen(console, headless=asked.headless, planned=len(schedule))
    title = f"load on {asked.url}"
    try:
        with screen:
            outcomes = asyncio.run(
                play(asked.url, schedule, settings, on_sent=screen.sent, on_outcome=screen.ended)
            )
    except KeyboardInterrupt:
        if screen.outcomes:
            cut = f"{title}, interrupted: {screen.under_way} more were under way and count nowhere"
            _tell(asked, console, screen.so_far(), slo, title=cut)
        raise
    _tell(asked, console, outcomes, slo, title=title)


def _tell(
    asked: LoadRequest, console: Console, outcomes: Outcomes, slo: Slo, *, title: str
) -> None:
    if asked.requests_file is not None:
        _write(asked.requests_file, outcomes.requests)
    console.print(load_table(outcomes, slo, title=title))


def schedule_of(asked: LoadRequest) -> tuple[Planned, ...]:
    """What to send when, from the mixes or else the trace."""
    if asked.mixes:
        return mixed([parse_mix(text) for text in asked.mixes], seed=asked.seed)
    return scaled(load_trace(trace_path(asked.trace)), asked.scaling, seed=asked.seed)


def load_table(outcomes: Outcomes, slo: Slo, *, title: str) -> Table:
    """A load in words: what was asked, what came, what users saw, how the sender did."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column()
    for name, words in load_rows(outcomes, slo):
        table.add_row(name, words)
    table.caption_justify = "left"
    table.caption = late_note(outcomes)
    return table


def late_note(outcomes: Outcomes) -> str | None:
    """What it means if the sender itself was late; `None` if it kept its times."""
    lag_s = percentile((one.lag_s for one in outcomes.requests), 0.99)
    if lag_s is None or lag_s <= LATE_S:
        return None
    return (
        f"the sender itself was {_time(lag_s)} late at p99, for this machine was too busy: "
        "the server got its requests later than planned, and waits from due include that"
    )


def load_rows(outcomes: Outcomes, slo: Slo) -> list[tuple[str, str]]:
    """The rows of the table."""
    requests = outcomes.requests
    sums = totals(requests)
    served = [one for one in requests if one.failure is None]
    wall_s = max(outcomes.wall_s, 1e-9)
    good = attainment_ratio(requests, slo)
    kinds = ", ".join(f"{number} {kind}" for kind, number in sums.failures)
    first = next((one.words for one in requests if one.failure is not None), "")
    targets = f"TTFT within {slo.ttft_s:g} s, mean gap within {slo.itl_s:g} s"
    rows = [
        ("requests", f"{sums.requests:,} in {wall_s:.1f} s, {sums.requests / wall_s:.2f} per s"),
        ("failed", f"{sums.failed:,}" + (f" ({kinds}); the first: {first}" if kinds else "")),
        ("prompt tokens", _per_s(sums.prompt_tokens, wall_s)),
        ("output tokens", _per_s(sums.output_tokens, wall_s)),
        ("good requests", "-" if good is None else f"{good:.2%} ({targets})"),
        ("TTFT from due", _spread([one.ttft_s for one in served])),
        ("TTFT from sending", _spread([one.ttft_from_sending_s for one in served])),
        ("mean gap of a request", _spread([one.mean_gap_s for one in served])),
        ("every gap", _spread([gap for one in served for gap in one.gaps_s])),
        ("sender's own lag", _spread([one.lag_s for one in requests])),
        ("sender's CPU", f"{outcomes.sender_cpu_s / wall_s:.0%} of a core"),
    ]
    return rows


def _checked(asked: LoadRequest) -> Slo:
    check_url(asked.url)
    if not asked.model:
        raise Misconfigured("no name", where="--model", found="''", expected="a model's name")
    for option, value in (
        ("--ttft", asked.ttft_s),
        ("--itl", asked.itl_s),
        ("--timeout", asked.timeout_s),
    ):
        if not 0.0 < value <= MAX_SECONDS:
            raise Misconfigured(
                "no such time",
                where=option,
                found=f"{value:g}",
                expected=f"seconds above 0, at most {MAX_SECONDS:g}",
            )
    file = asked.requests_file
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise Misconfigured(
            "cannot write there",
            where="--requests-file",
            found=str(file),
            expected="a file in a folder that is there",
        )
    return Slo(ttft_s=asked.ttft_s, itl_s=asked.itl_s, attainment_ratio=0.99)


def _write(file: Path, requests: Sequence[RequestOutcome]) -> None:
    try:
        file.write_text("".join(f"{line}\n" for line in json_lines(requests)), encoding="utf-8")
    except OSError as error:
        raise Misconfigured(
            "cannot write there",
            where="--requests-file",
            found=f"{file}: {error.strerror}",
            expected="a file that can be written",
        ) from error


def _per_s(tokens: int, wall_s: float) -> str:
    return f"{tokens:,}, {tokens / wall_s:,.0f} per s"


def _spread(values: Sequence[float | None]) -> str:
    """The percentiles that are of interest, and the largest."""
    shares = [(name, percentile(values, ratio)) for name, ratio in (*_SHARES, ("most", 1.0))]
    return ", ".join(f"{name} {_time(value)}" for name, value in shares)


def _time(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} s" if value >= 1.0 else f"{value * 1000:.1f} ms"


class _Screen:
    """A progress bar; headless, a line now and then by the load's own clock."""

    def __init__(self, console: Console, *, headless: bool, planned: int) -> None:
        self._console = console
        self._headless = headless
        self._planned = planned
        self.outcomes: list[RequestOutcome] = []
        self._began_cpu_s = time.process_time()
        self._sent = self._failed = 0
        self._line_due_s = _LINE_EVERY_S
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
            console=console,
            disable=headless,
        )
        self._task = self._progress.add_task("load", total=planned, words="begins")

    def __enter__(self) -> _Screen:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @property
    def under_way(self) -> int:
        """Sent, and not ended."""
        return self._sent - len(self.outcomes)

    def so_far(self) -> Outcomes:
        """What ended before the load was interrupted."""
        return Outcomes(
            requests=tuple(sorted(self.outcomes, key=lambda one: one.scheduled_s)),
            wall_s=max(one.ended_s for one in self.outcomes),
            sender_cpu_s=time.process_time() - self._began_cpu_s,
        )

    def sent(self) -> None:
        self._sent += 1
        self._show()

    def ended(self, outcome: RequestOutcome) -> None:
        self.outcomes.append(outcome)
        self._failed += outcome.failure is not None
        self._show()
        if self._headless and outcome.ended_s >= self._line_due_s:
            self._line_due_s = outcome.ended_s + _LINE_EVERY_S
            self._console.print(f"{outcome.ended_s:.0f} s: {self._words()}")

    def _show(self) -> None:
        self._progress.update(self._task, completed=len(self.outcomes), words=self._words())

    def _words(self) -> str:
        ended = len(self.outcomes)
        still = self.under_way
        return f"{ended} of {self._planned} ended, {still} under way, {self._failed} failed"
