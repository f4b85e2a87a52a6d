"""`phasewise top`: a tier in the terminal, live."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise top --url http://127.0.0.1:9321"


def command(
    ledger: Annotated[
        Path | None, typer.Option(help="A ledger that `run` or `demo` writes [out/demo.sqlite].")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Address of a running control plane.")] = None,
    tier: Annotated[
        str | None, typer.Option(help="Which tier, where --url has more than one.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one picture and end.")] = False,
) -> None:
    """Show a tier live: pools, ratio, history, last decisions, sources. Ends with Ctrl-C."""
    from phasewise.terminal import wide_console
    from phasewise.topping import watch
    from phasewise.watching import watched

    watch(watched(ledger, url, tier), wide_console(), once=once)
