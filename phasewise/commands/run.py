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
        typer.Option(
            help="Most virtual seconds in a real one; 0 for no limit (lockstep clock only)."
        ),
    ] = None,
) -> None:
    """Observe, learn, plan and (in mode act) scale the tiers of a settings file."""
    import asyncio

    from phasewise.keda import run_beside
    from phasewise.logs import set_up_logs
    from phasewise.options import speed_of, until_of
    from phasewise.running import run_all
    from phasewise.settings import load_settings

    until_s = None if until is None else until_of(until)
    speed_cap = None if speed is None else speed_of(speed)
    set_up_logs()
    settings = load_settings(config)
    asyncio.run(run_beside(settings, lambda: run_all(settings, until_s=until_s, speed=speed_cap)))
