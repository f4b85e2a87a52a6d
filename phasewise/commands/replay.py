"""`phasewise replay`: does a ledger's past come out the same?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise replay phasewise.sqlite"


def command(
    ledger: Annotated[Path, typer.Argument(help="A ledger that `run` or `demo` wrote.")],
) -> None:
    """Fold every recorded tick again and compare plans and states. Exit code 1 on a difference."""
    from phasewise.replaying import replay_file

    raise typer.Exit(code=replay_file(ledger, typer.echo))
