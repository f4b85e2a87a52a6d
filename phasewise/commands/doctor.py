"""`phasewise doctor`: can the loop run on this, and if not, what mends it?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise doctor --prometheus http://127.0.0.1:9090 --tier tier.yaml"


def command(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The settings file: its targets and all it names."),
    ] = None,
    pages: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder of saved metric pages.")
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="A Prometheus that scrapes the tier.")
    ] = None,
    tier: Annotated[
        Path | None,
        typer.Option(help="The tier document to hold --pages or --prometheus against."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Keep what was found in this file.")
    ] = None,
) -> None:
    """Say what each target is, what it lacks, what that costs and what mends it.

    Exit code 0 if the loop can run, 1 if it cannot.
    """
    from rich.console import Console

    from phasewise.doctor import DoctorRequest, run_doctor

    request = DoctorRequest(
        config=config, pages=pages, prometheus=prometheus, tier=tier, json_file=json_file
    )
    raise typer.Exit(code=run_doctor(request, Console()))
