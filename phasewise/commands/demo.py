"""`phasewise demo`: see the main job done."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise demo --headless --json out/demo.json"


def command(
    trace: Annotated[
        str, typer.Option(help="A packaged trace's name, or a .csv(.gz) file.")
    ] = "azure2023_conv",
    seed: Annotated[int, typer.Option(help="Seed of copies and router.")] = 1,
    speed: Annotated[
        float, typer.Option(help="Most virtual seconds in a real one; 0 for no limit.")
    ] = 60.0,
    headless: Annotated[bool, typer.Option(help="Lines instead of progress bars.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Keep the figures in this file.")
    ] = None,
    ledger: Annotated[
        Path, typer.Option(help="Where every tick is kept; an old one is replaced.")
    ] = Path("out/demo.sqlite"),
    no_console: Annotated[
        bool, typer.Option("--no-console", help="Do not serve the live page meanwhile.")
    ] = False,
) -> None:
    """Size a simulated tier on a real trace over HTTP, and compare with other policies."""
    from phasewise.demo import DemoRequest, run_demo
    from phasewise.ending import sigterm_interrupts
    from phasewise.options import speed_of
    from phasewise.terminal import wide_console

    asked = DemoRequest(
        trace=trace,
        seed=seed,
        speed=speed_of(speed),
        headless=headless,
        json_file=json_file,
        ledger_file=ledger,
        serves_console=not no_console,
    )
    with sigterm_interrupts():
        run_demo(asked, wide_console())
