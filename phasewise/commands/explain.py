"""`phasewise explain`: why does a pool have its size?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise explain decode --url http://127.0.0.1:9321"


def command(
    pool: Annotated[
        str | None, typer.Argument(help="The pool's name; every pool of the tier if absent.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="A ledger that `run` or `demo` wrote [out/demo.sqlite].")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Address of a running control plane.")] = None,
    tier: Annotated[
        str | None, typer.Option(help="Which tier, where --url has more than one.")
    ] = None,
    epoch: Annotated[
        int | None, typer.Option(min=1, help="Which tick; the newest if absent.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The same as JSON, a pool a line.")
    ] = False,
) -> None:
    """Say why a pool has its size: inputs, forecast, needs, steps, and one replica more or less."""
    from phasewise.explaining import print_explanations, print_json
    from phasewise.terminal import wide_console
    from phasewise.watching import watched

    source = watched(ledger, url, tier)
    if as_json:
        print_json(source, pool, epoch, typer.echo)
    else:
        print_explanations(source, pool, epoch, wide_console())
