"""`phasewise compare-engines`: the simulator against a live pair, series by series."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise compare-engines --tier examples/local-tier.yaml"


def command(
    recording: Annotated[
        Path, typer.Option(help="Folder of the recording: read, or written with --tier.")
    ] = Path("out/live-pair"),
    tier: Annotated[
        Path | None,
        typer.Option(help="Record first: the tier document of a local pair, which is started."),
    ] = None,
    control: Annotated[
        str | None,
        typer.Option(help="With --tier: its control endpoint, if it runs already."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of arrivals, lengths and prompts.")] = 1,
    profile: Annotated[
        Path | None, typer.Option(help="Where the fitted profile goes; out/ if absent.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Where the page goes; out/ if absent.")
    ] = None,
) -> None:
    """Play one load on a live pair and on a simulated one fitted to it; compare every series."""
    from phasewise.ending import sigterm_interrupts
    from phasewise.reality.wiring import CompareRequest, compare_engines
    from phasewise.terminal import wide_console

    asked = CompareRequest(
        recording=recording,
        tier_file=tier,
        control=control,
        seed=seed,
        profile_file=profile,
        report_file=report,
    )
    with sigterm_interrupts():
        compare_engines(asked, wide_console())
