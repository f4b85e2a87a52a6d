"""`phasewise backtest`: plays policies on a trace, and tells of it as a table, JSON and HTML."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from phasewise.backtesting import POLICIES, PolicyChoice
from phasewise.comparison import (
    DEFAULT_TARGET_RATIO,
    Loaded,
    Peers,
    Workload,
    comparison_json,
    likely_size,
    load_workload,
    peak_sizes,
    resolve_volume,
    trace_path,
    window,
)
from phasewise.scoring import Score
from phasewise.table import comparison_table
from serving.errors import Misconfigured
from serving.schema.tier import demo_tier_path, load_tier
from serving.simulation.traffic import load_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestRequest:
    """The options of the command, as given."""

    trace: str = "azure2023_conv"
    tier_file: Path | None = None
    policies: str = "phasewise"
    volume: str = "auto"
    from_s: float | None = None
    to_s: float | None = None
    seed: int = 1
    json_file: Path | None = None
    html_file: Path | None = None


def choices_of(text: str) -> tuple[PolicyChoice, ...]:
    """The policies asked for: `NAME`, `NAME:0.2` (a headroom) or `NAME:8x9` (fixed sizes)."""
    choices: list[PolicyChoice] = []
    for part in text.split(","):
        name, _, knob = part.strip().partition(":")
        try:
            choices.append(_choice(name, knob))
        except ValueError as error:
            raise Misconfigured(
                "no such policy",
                where="--policy",
                found=repr(part),
                expected=f"of {', '.join(POLICIES)}; a headroom as last_value:0.2, "
                "sizes as best_static:12x10",
            ) from error
    if len({choice.name for choice in choices}) != len(choices):
        raise Misconfigured(
            "a policy twice", where="--policy", found=repr(text), expected="each once"
        )
    return tuple(choices)


def _choice(name: str, knob: str) -> PolicyChoice:
    if name not in POLICIES or (name == "phasewise" and knob):
        raise ValueError(name)
    if not knob:
        return PolicyChoice(name=name)
    if name in ("best_static", "static_peak"):
        prefill, decode = (int(number) for number in knob.split("x"))
        if prefill < 1 or decode < 1:
            raise ValueError(knob)
        return PolicyChoice(name=name, prefill_replicas=prefill, decode_replicas=decode)
    headroom = float(knob)
    if not -0.9 <= headroom <= 10.0:
        raise ValueError(knob)
    return PolicyChoice(name=name, headroom_ratio=headroom)


def _rows(
    peers: Peers, choices: Sequence[PolicyChoice], loaded: Loaded, peak: tuple[int, int]
) -> list[Score]:
    """The rows in the order asked. Peers without a knob are matched to phasewise if it plays."""
    fixed: dict[str, Future[Score]] = {
        choice.name: peers.submit(peers.play, choice)
        for choice in choices
        if choice.name == "phasewise"
        or choice.prefill_replicas
        or choice.headroom_ratio is not None
    }
    open_names = [choice.name for choice in choices if choice.name not in fixed]
    if "static_peak" in open_names:
        open_names.remove("static_peak")
        fixed["static_peak"] = peers.submit(peers.static_peak, peak)
    target = (
        fixed["phasewise"].result().attainment_ratio
        if "phasewise" in fixed
        else DEFAULT_TARGET_RATIO
    )
    found = peers.rows(target, peers=open_names, start=likely_size(peak, loaded.need))
    found |= {name: job.result() for name, job in fixed.items()}
    return [_with_sizes(found[choice.name], choice) for choice in choices]


def _with_sizes(row: Score, choice: PolicyChoice) -> Score:
    if choice.prefill_replicas is None or choice.decode_replicas is None:
        return row
    return replace(
        row, sizes={"prefill": choice.prefill_replicas, "decode": choice.decode_replicas}
    )


def run_backtests(asked: BacktestRequest, console: Console) -> list[Score]:
    """Play everything asked for, print the table, write the files; returns the rows."""
    choices = choices_of(asked.policies)
    if asked.html_file is not None:
        from dashboards.report import require_plotly

        require_plotly()  # before minutes of simulation, not after
    tier_file = asked.tier_file or demo_tier_path()
    tier = load_tier(tier_file)
    base = window(load_trace(trace_path(asked.trace)), from_s=asked.from_s, to_s=asked.to_s)
    workload = Workload(
        tier_file=tier_file,
        trace=asked.trace,
        volume=resolve_volume(tier, base, asked.volume),
        seed=asked.seed,
        from_s=asked.from_s,
        to_s=asked.to_s,
    )
    loaded = load_workload(workload)
    peak = peak_sizes(loaded.requests, loaded.need.capacity)
    console.print(
        f"{asked.trace}, volume {workload.volume:g}: {len(loaded.requests):,} requests, mean need "
        f"{loaded.need.prefill_replicas:.1f} prefill and {loaded.need.decode_replicas:.1f} decode"
    )
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("plays", total=None)

        def played(row: Score) -> None:
            progress.update(task, description=f"plays; last: {row.policy}", advance=1)

        peers = Peers(
            workload,
            processes=max(1, min(4, os.cpu_count() or 1)),
            on_played=played,
            say=console.print,
        )
        try:
            rows = _rows(peers, choices, loaded, peak)
        finally:
            peers.close()
    console.print(comparison_table(rows, title=f"{asked.trace} on tier {tier.name}"))
    extra = {
        "volume": workload.volume,
        "window_s": {
            "from": asked.from_s or 0.0,
            "to": loaded.requests[-1].arrival_s + (asked.from_s or 0.0),
        },
    }
    document = comparison_json(rows, trace=asked.trace, slo=tier.slo, seed=asked.seed, extra=extra)
    if asked.json_file is not None:
        _write(asked.json_file, json.dumps(document, indent=1) + "\n")
    if asked.html_file is not None:
        from phasewise.html_report import report_of

        _write(asked.html_file, report_of(workload, loaded, rows))
    return rows


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Misconfigured(
            "the file cannot be written",
            where=str(path),
            found=str(error),
            expected="a folder that can be written",
        ) from error
