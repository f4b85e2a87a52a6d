"""Free ports of this machine for what is yet to be started.

They lie under the range from which the kernel takes the local end of a connection: an engine binds
its port half a minute after it was chosen, and no connection may have taken it meanwhile.
"""

from __future__ import annotations

import os
import socket

FIRST, LAST = 20_000, 32_000


class FreePorts:
    """Gives each port once; two runs begin at different places."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self._next = FIRST + (os.getpid() * 37) % (LAST - FIRST)

    def take(self) -> int:
        """A port that nobody listens at now."""
        for _ in range(LAST - FIRST):
            port = self._next
            self._next = FIRST + (port + 1 - FIRST) % (LAST - FIRST)
            if is_free(self._host, port):
                return port
        raise OSError("no free port")


def is_free(host: str, port: int) -> bool:
    """True if one could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError:
            return False
        return True
