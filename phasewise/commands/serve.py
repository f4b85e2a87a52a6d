"""`phasewise serve`: answers KEDA from the published plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise serve -c phasewise.yaml"


def command(
    config: Annotated[Path, typer.Option("--config", "-c", help="The settings file.")],
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port, in place of that of the settings; 0 picks one."),
    ] = None,
) -> None:
    """Answer KEDA over gRPC from the plans that `run` publishes. Prints where, as JSON."""
    import asyncio

    from phasewise.keda import serve
    from phasewise.logs import set_up_logs
    from phasewise.settings import load_settings

    set_up_logs()
    asyncio.run(serve(load_settings(config), port=port, announce=typer.echo))
