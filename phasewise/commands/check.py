"""`phasewise check`: is this file a tier or a settings file, and is it right?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise check tier.yaml"


def command(
    file: Annotated[Path, typer.Argument(help="A tier document or a settings file.")],
) -> None:
    """Check a tier or a settings file, and say in one line what it is."""
    from phasewise.checking import summary_of

    typer.echo(summary_of(file))
