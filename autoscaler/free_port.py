"""Whether a port is free, asked before listeners that share a port with each other take it."""

from __future__ import annotations

import socket

from serving.errors import Misconfigured


def refuse_taken(host: str, port: int) -> None:
    """Misconfigured if someone listens there already; port 0 is always free.

    A listener that shares its port would not notice, and answer only some of the calls.
    """
    if port == 0:
        return
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise Misconfigured(
            "cannot listen",
            where=f"{host}:{port}",
            found=error.strerror or str(error),
            expected="a free port of this machine",
        ) from error
