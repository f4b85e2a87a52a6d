"""`phasewise load`: real requests to a real server, counted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise load --url http://127.0.0.1:8000 --model tiny --seconds 60"


def command(
    url: Annotated[str, typer.Option(help="Address of an OpenAI-compatible server or router.")],
    model: Annotated[str, typer.Option(help="Name of the model, as the server calls it.")],
    trace: Annotated[
        str, typer.Option(help="A packaged trace's name, or a .csv(.gz) file.")
    ] = "azure2023_conv",
    rate_factor: Annotated[
        float, typer.Option(help="Multiple of the trace's requests per second, as played.")
    ] = 1.0,
    time_factor: Annotated[
        float, typer.Option(help="Seconds of the trace that pass in one; the rate stays.")
    ] = 1.0,
    input_factor: Annotated[float, typer.Option(help="Multiple of the prompts' lengths.")] = 1.0,
    output_factor: Annotated[float, typer.Option(help="Multiple of the answers' lengths.")] = 1.0,
    input_cap: Annotated[int | None, typer.Option(help="Longest prompt, in tokens.")] = None,
    output_cap: Annotated[int | None, typer.Option(help="Longest answer, in tokens.")] = None,
    from_s: Annotated[
        float, typer.Option("--from", help="Where in the trace to begin, in its seconds.")
    ] = 0.0,
    seconds: Annotated[
        float | None, typer.Option(help="How long to send; to the trace's end if absent.")
    ] = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(
            help="Made-up traffic, no trace: rate=5,input=512/128,output=64/16,seconds=60 "
            "(mean/spread in tokens). Given again, they follow one another."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of arrivals, copies and prompts.")] = 1,
    shared_prefix: Annotated[
        float, typer.Option(help="Share of each prompt that is the same in all (0-1).")
    ] = 0.0,
    timeout: Annotated[float, typer.Option(help="Longest wait for a whole answer, in s.")] = 300.0,
    requests_file: Annotated[
        Path | None, typer.Option(help="Keep every request in this file, as JSON lines.")
    ] = None,
    ttft: Annotated[float, typer.Option(help="Target for the time to first token, in s.")] = 2.5,
    itl: Annotated[float, typer.Option(help="Target for a request's mean gap, in s.")] = 0.05,
    headless: Annotated[bool, typer.Option(help="Lines instead of a progress bar.")] = False,
) -> None:
    """Send a trace's requests to a server, open loop and streamed, and say what users saw."""
    from phasewise.ending import sigterm_interrupts
    from phasewise.loading import LoadRequest, run_load
    from phasewise.terminal import wide_console
    from serving.load.schedule import Scaling

    asked = LoadRequest(
        url=url,
        model=model,
        trace=trace,
        scaling=Scaling(
            rate_factor=rate_factor,
            time_factor=time_factor,
            input_factor=input_factor,
            output_factor=output_factor,
            input_cap_tokens=input_cap,
            output_cap_tokens=output_cap,
            from_s=from_s,
            seconds=seconds,
        ),
        mixes=tuple(mix or ()),
        seed=seed,
        shared_prefix_ratio=shared_prefix,
        timeout_s=timeout,
        requests_file=requests_file,
        ttft_s=ttft,
        itl_s=itl,
        headless=headless,
    )
    with sigterm_interrupts():
        run_load(asked, wide_console())
