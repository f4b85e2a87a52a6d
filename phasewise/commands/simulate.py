"""`phasewise simulate`: only the tier, for Prometheus or for `phasewise run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise simulate --trace azure2023_conv --port 9300"


def command(
    tier: Annotated[
        Path | None, typer.Option(help="The tier document; the packaged demo tier if absent.")
    ] = None,
    trace: Annotated[
        str, typer.Option(help="A packaged trace's name, or a .csv(.gz) file.")
    ] = "azure2023_conv",
    volume: Annotated[
        str, typer.Option(help="Multiple of the traffic, or auto (about 8 replicas of each).")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of copies and router.")] = 1,
    port: Annotated[int, typer.Option(help="Port of the control endpoint; 0 picks one.")] = 0,
    router_page: Annotated[
        str, typer.Option(help="Page of the front end: epp, vllm-router or none.")
    ] = "epp",
    lockstep: Annotated[
        bool, typer.Option(help="Virtual time moves only when told by POST /clock/advance.")
    ] = False,
    speed: Annotated[
        float,
        typer.Option(
            help="Virtual seconds in a real one (wall clock); whoever keeps its own time, as "
            "`phasewise run` does, needs 1."
        ),
    ] = 1.0,
    initial: Annotated[
        str | None, typer.Option(help="Sizes at the start, as prefill=8,decode=9.")
    ] = None,
    until_stdin_closes: Annotated[
        bool, typer.Option("--until-stdin-closes", hidden=True, help="End with whoever feeds it.")
    ] = False,
) -> None:
    """Serve a simulated tier: pages, http_sd, scale endpoints, clock. Prints where, as JSON."""
    import asyncio

    from phasewise.simulating import SimulationRequest, simulate

    asyncio.run(
        simulate(
            SimulationRequest(
                tier_file=tier,
                trace=trace,
                volume=volume,
                seed=seed,
                port=port,
                router_page=router_page,
                lockstep=lockstep,
                speed=speed,
                initial=initial,
                until_stdin_closes=until_stdin_closes,
            ),
            announce=typer.echo,
        )
    )
