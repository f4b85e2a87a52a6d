"""`phasewise probe`: how fast is KV between two processes, and what does it go over?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise probe --sizes 1MiB,64MiB --concurrency 1,4 --json probe.json"


def command(
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Be the other side for a probe from elsewhere."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Measure against the side that listens there."),
    ] = None,
    sizes: Annotated[
        str, typer.Option(help="Bytes of one transfer, as 64KiB, 1MiB or plain numbers.")
    ] = "64KiB,1MiB,16MiB,64MiB",
    concurrency: Annotated[str, typer.Option(help="How many transfers are in flight.")] = "1,4",
    operations: Annotated[str, typer.Option(help="read, write or both.")] = "read",
    backends: Annotated[str, typer.Option(help="NIXL backends to try.")] = "UCX,LIBFABRIC",
    repetitions: Annotated[int, typer.Option(help="Measured repetitions, at most.")] = 7,
    ucx_tls: Annotated[
        str | None, typer.Option("--ucx-tls", help="Force UCX's transports, as tcp,self.")
    ] = None,
    limit: Annotated[float, typer.Option(help="Seconds after which it is given up.")] = 180.0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Keep what was found in this file.")
    ] = None,
) -> None:
    """Move real bytes by NIXL between two processes, check them, and say how fast and over what.

    Without --listen and --to both sides run here.
    """
    from phasewise.ending import sigterm_interrupts
    from phasewise.probe_options import ProbeAsked
    from phasewise.probing import probe
    from phasewise.terminal import wide_console

    with sigterm_interrupts():
        probe(
            ProbeAsked(
                listen=listen,
                to=to,
                sizes=sizes,
                concurrency=concurrency,
                operations=operations,
                backends=backends,
                repetitions=repetitions,
                ucx_tls=ucx_tls,
                limit_s=limit,
                json_file=json_file,
            ),
            wide_console(),
        )
