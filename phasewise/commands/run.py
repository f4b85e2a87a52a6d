"""`phasewise run`: the control plane itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise run -c phasewise.yaml"


def command(
    config: Annotated[Path, typer.Option("--config", "-c", help="The settings file.")],
    until: Annotated[
        float | None,
        typer.Option(help="End at this virtual time in seconds (lockstep clock only)."),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(help="Most virtual seconds in a real one (lockstep clock only)."),
    ] = None,
) -> None:
    """Observe, learn, plan and (in mode act) scale the tiers of a settings file."""
    import asyncio

    from phasewise.logs import set_up_logs
    from phasewise.running import run_all
    from phasewise.settings import load_settings

    set_up_logs()
    asyncio.run(run_all(load_settings(config), until_s=until, speed=speed))
