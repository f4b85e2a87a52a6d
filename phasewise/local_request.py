"""What `phasewise local up` takes, and what it refuses before anything starts."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from serving.errors import Misconfigured
from serving.local.run_state import FOLDER

ENGINES = ("vllm", "simulated")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpRequest:
    """The options of `up`, as given."""

    tier_file: Path
    engine: str
    port: int = 0
    folder: Path = FOLDER
    headless: bool = False
    trace: str = "azure2023_conv"
    volume: str = "auto"
    otlp_endpoint: str | None = None
    ucx_tls: str | None = None
    until_stdin_closes: bool = False


def refuse_taken_port(port: int) -> None:
    """Say so before anything starts, not after minutes."""
    if not 0 <= port <= 65_535:
        raise Misconfigured(
            "no such port", where="--port", found=str(port), expected="1 to 65535, or 0 for any"
        )
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise Misconfigured(
            "the control endpoint cannot listen",
            where=f"127.0.0.1:{port}",
            found=error.strerror or str(error),
            expected="a free port of this machine (0: any)",
        ) from error
