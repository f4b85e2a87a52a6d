"""`phasewise backtest`: policies on a trace at full speed, without HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = (
    "phasewise backtest --trace azure2023_conv --policy phasewise,last_value --html out/b.html"
)


def command(
    trace: Annotated[
        str, typer.Option(help="A packaged trace's name, or a .csv(.gz) file.")
    ] = "azure2023_conv",
    tier: Annotated[
        Path | None, typer.Option(help="The tier document; the packaged demo tier if absent.")
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            help="Policies, separated by commas: phasewise, static_peak, best_static, "
            "pinned_ratio, last_value. NAME:0.2 fixes a headroom, NAME:8x9 fixed sizes."
        ),
    ] = "phasewise",
    volume: Annotated[
        str, typer.Option(help="Multiple of the traffic, or auto (about 8 replicas of each).")
    ] = "auto",
    from_s: Annotated[
        float | None, typer.Option("--from", help="Start of the window, seconds into the trace.")
    ] = None,
    to_s: Annotated[
        float | None, typer.Option("--to", help="End of the window, seconds into the trace.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of copies and router.")] = 1,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Keep the figures in this file.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a self-contained report with plots.")
    ] = None,
) -> None:
    """Play a trace under one or more policies; ends with a table."""
    from phasewise.backtest_report import BacktestRequest, run_backtests
    from phasewise.ending import sigterm_interrupts
    from phasewise.terminal import wide_console

    asked = BacktestRequest(
        trace=trace,
        tier_file=tier,
        policies=policy,
        volume=volume,
        from_s=from_s,
        to_s=to_s,
        seed=seed,
        json_file=json_file,
        html_file=html,
    )
    with sigterm_interrupts():
        run_backtests(asked, wide_console())
