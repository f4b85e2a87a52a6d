"""A loopback port that is reserved for as long as its owner lives, and listens only when told.

While it does not listen, connections to it are refused, as to a server that is still starting;
nobody else can be given the port meanwhile.
"""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web


class ReservedPort:
    """One port: `open` and `close` may alternate, `release` gives it up."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._holder = _bound_socket(host, 0)
        self._listener: asyncio.Server | None = None
        self.port: int = self._holder.getsockname()[1]

    @property
    def address(self) -> str:
        """`host:port`, as service discovery writes it."""
        return f"{self._host}:{self.port}"

    async def open(self, server: web.Server) -> None:
        """Start to listen; nothing happens if it does already."""
        if self._listener is None:
            listener = _bound_socket(self._host, self.port)
            loop = asyncio.get_running_loop()
            self._listener = await loop.create_server(server, sock=listener)

    def close(self) -> None:
        """Refuse new connections; connections that are open stay."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def release(self) -> None:
        """Close, and let the port go."""
        self.close()
        self._holder.close()


def _bound_socket(host: str, port: int) -> socket.socket:
    """A socket that shares its port with its twin: one holds the port, the other listens."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
