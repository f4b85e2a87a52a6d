"""`phasewise traces`: one trace per request, joined over prefill and decode."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise traces --listen 127.0.0.1:4318 --grpc 4317 --file out/requests.jsonl"


def command(
    listen: Annotated[
        str, typer.Option(help="Where engines send spans by OTLP/HTTP, HOST:PORT; port 0 picks.")
    ] = "127.0.0.1:4318",
    grpc: Annotated[
        int | None, typer.Option(min=0, max=65535, help="A port of the same host for OTLP/gRPC.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="Send joined requests on to this OTLP/HTTP address.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Append joined requests to this file, as OTLP JSON lines.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="A loopback port for the parts as histograms."),
    ] = None,
    model: Annotated[
        str, typer.Option(help="Name of the model, where the engines do not say it.")
    ] = "",
    wait: Annotated[
        float, typer.Option(min=1.0, help="How long half a request waits for the other, in s.")
    ] = 300.0,
) -> None:
    """Join engines' request spans until a signal; then say where first tokens' time went."""
    import asyncio

    from phasewise.terminal import wide_console
    from phasewise.tracing import TracesRequest, trace_requests

    asked = TracesRequest(
        listen=listen,
        grpc_port=grpc,
        to=to,
        file=file,
        metrics_port=metrics_port,
        model=model,
        wait_s=wait,
    )
    asyncio.run(trace_requests(asked, wide_console(), announce=typer.echo))
