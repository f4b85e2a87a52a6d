"""Tells vllm-router's discovery who serves what, the way that vLLM's own connectors do.

The router (0.1.17) keeps two lists, of prefill and of decode workers, by HTTP address. A message
puts an address on one list for five seconds; nothing takes it off before. So whoever changes its
role is on both lists for a while, and whoever stops telling is still chosen until `FORGETS_S`
have passed: that is the supervisor's to wait for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import msgpack
import zmq

from serving.types import Phase

PING_S = 2.0
FORGETS_S = 6.0
"""The router's five seconds (vllm-project/router, Apache-2.0), and one for whole seconds."""
_LETTERS = {Phase.PREFILL: "P", Phase.DECODE: "D"}


class Registrar:
    """One connection to the router's discovery address.

    While the router is away nothing is kept for it: an old message would bring back who has left.
    """

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 50)
        self._socket.connect(f"tcp://{address}")
        self._last_s: dict[str, float] = {}

    def tell(self, workers: Iterable[tuple[str, Phase]]) -> None:
        """Name every worker that serves now, each as `host:port` and phase."""
        for address, phase in workers:
            message = {
                "type": _LETTERS[phase],
                "http_address": address,
                "zmq_address": address,
            }
            try:
                self._socket.send(msgpack.packb(message), zmq.NOBLOCK)
            except zmq.Again:  # the router is not there
                return
            self._last_s[address] = time.monotonic()

    def forgotten(self, address: str) -> bool:
        """True once the router chooses this worker no more, given that nobody names it."""
        last_s = self._last_s.get(address)
        return last_s is None or time.monotonic() - last_s >= FORGETS_S

    @property
    def last_told(self) -> Mapping[str, float]:
        """When each worker was last named, on the monotonic clock."""
        return dict(self._last_s)

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close(linger=0)
        self._context.term()
