"""`phasewise local`: a tier of real engines on this machine, up, looked at and down."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise local up --tier examples/local-tier.yaml"

Folder = Annotated[Path, typer.Option(help="Where the run is written down, with its logs.")]
FOLDER = Path(".cache/local")


def up(
    tier: Annotated[Path, typer.Option(help="The tier document; its variants say `local`.")],
    engine: Annotated[
        str, typer.Option(help="vllm: real engines on CPUs; simulated: the same tier, simulated.")
    ] = "vllm",
    port: Annotated[int, typer.Option(help="Port of the control endpoint; 0 picks one.")] = 0,
    folder: Folder = FOLDER,
    foreground: Annotated[
        bool,
        typer.Option(
            "--foreground/--background", help="Stay until a signal, or come back once it serves."
        ),
    ] = True,
    headless: Annotated[bool, typer.Option(help="Lines instead of a table.")] = False,
    trace: Annotated[
        str, typer.Option(help="simulated: a packaged trace's name, or a .csv(.gz) file.")
    ] = "azure2023_conv",
    volume: Annotated[str, typer.Option(help="simulated: multiple of the traffic.")] = "auto",
    otlp_endpoint: Annotated[
        str | None,
        typer.Option(
            help="vllm: where engines send their spans by HTTP: http://HOST:4318/v1/traces."
        ),
    ] = None,
    ucx_tls: Annotated[
        str | None, typer.Option(help="vllm: UCX transports of KV, as `tcp,self`; all if absent.")
    ] = None,
    until_stdin_closes: Annotated[
        bool, typer.Option("--until-stdin-closes", hidden=True, help="End with whoever feeds it.")
    ] = False,
) -> None:
    """Start a tier's pools and router as processes, and keep them up. Prints where, as JSON."""
    import asyncio

    from phasewise.local_request import UpRequest
    from phasewise.local_tier import up as bring_up

    asked = UpRequest(
        tier_file=tier,
        engine=engine,
        port=port,
        folder=folder,
        headless=headless or not foreground,
        trace=trace,
        volume=volume,
        otlp_endpoint=otlp_endpoint,
        ucx_tls=ucx_tls,
        until_stdin_closes=until_stdin_closes,
    )
    if foreground:
        asyncio.run(bring_up(asked, say=typer.echo))
    else:
        from phasewise.local_background import up_in_background

        up_in_background(asked, say=typer.echo)


def down(folder: Folder = FOLDER) -> None:
    """End the tier and everything that it left, also after its supervisor was killed."""
    from phasewise.local_down import down as take_down

    typer.echo(take_down(folder))


def status(folder: Folder = FOLDER) -> None:
    """Say what is up, what happened last and what was lost."""
    from phasewise.local_background import status_lines

    for line in status_lines(folder):
        typer.echo(line)


def prepare() -> None:
    """Make the engine environment (about 6 GB, once), so that the first `up` need not."""
    from phasewise.local_screen import screen
    from serving.local.environment import EngineEnvironment, default_root

    env = EngineEnvironment(default_root())
    if not env.ready:
        env.make(screen(typer.echo, headless=True).making)
    typer.echo(f"the engine environment is ready at {env.root}")


SUBCOMMANDS = {"up": up, "down": down, "status": status, "prepare": prepare}


def command() -> None:
    """A tier of real engines on this machine: up, down, status."""
