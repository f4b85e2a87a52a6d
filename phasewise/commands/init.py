"""`phasewise init`: a first tier document from what is running."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise init --http-sd http://127.0.0.1:9300/sd -o tier.yaml"


def command(
    http_sd: Annotated[
        str | None, typer.Option(metavar="URL", help="A target list in Prometheus' http_sd form.")
    ] = None,
    pages: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder of saved metric pages.")
    ] = None,
    url: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="The page of an engine or router; as often as wanted."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where it goes.")] = Path(
        "tier.yaml"
    ),
    force: Annotated[bool, typer.Option(help="Replace the file if there is one.")] = False,
) -> None:
    """Write a first tier document from live pages; what could not be known is marked TODO."""
    from phasewise.init_tier import InitRequest, run_init

    result = run_init(
        InitRequest(http_sd=http_sd, pages=pages, urls=url or [], output=output, force=force)
    )
    for warning in result.warnings:
        typer.echo(f"look: {warning}", err=True)
    pools = ", ".join(f"{pool.name} ({pool.replicas})" for pool in result.draft.pools)
    typer.echo(f"{output}: pools {pools}; {result.todo} TODOs")
    if result.problem is not None:
        typer.echo(f"not whole yet: {result.problem}")
