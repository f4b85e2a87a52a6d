"""`phasewise startups`: how long does a start take here, stage by stage, cold and warm?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise startups --tier examples/startup-tier.yaml --runs 3 --json startups.json"


def command(
    tier: Annotated[
        Path, typer.Option(metavar="FILE", help="Tier with a `local` part in its variant.")
    ],
    pool: Annotated[
        str | None, typer.Option(metavar="NAME", help="Pool to start; the first where absent.")
    ] = None,
    runs: Annotated[int, typer.Option(help="Starts of each kind.")] = 3,
    limit: Annotated[float, typer.Option(help="Seconds after which a start has failed.")] = 600.0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Keep what was measured in this file.")
    ] = None,
) -> None:
    """Start one real engine again and again, with its weights at their source and in the cache.

    Tells the stages of each start and what the plan's lead model learns from them.
    """
    from rich.console import Console

    from phasewise.ending import sigterm_interrupts
    from phasewise.startups import StartupsAsked, measure_startups

    with sigterm_interrupts():
        asked = StartupsAsked(tier=tier, pool=pool, runs=runs, json_file=json_file, limit_s=limit)
        measure_startups(asked, Console())
