"""The KV network of one replica: a link that carries one transfer after the other. Pure."""

from __future__ import annotations


class KvLink:
    """A replica's link. `factor` is what a fault leaves of its bandwidth (1.0: all)."""

    __slots__ = ("bytes_per_s", "factor", "free_s", "latency_s")

    def __init__(self, *, bytes_per_s: float, latency_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self.latency_s = latency_s
        self.factor = 1.0
        self.free_s = 0.0

    @property
    def rate_bytes_per_s(self) -> float:
        """What it carries now."""
        return self.bytes_per_s * self.factor


def reserve(
    source: KvLink, target: KvLink, *, now_s: float, transfer_bytes: float
) -> tuple[float, float]:
    """Put a transfer on both links: when it starts and when its last byte has arrived.

    It starts when both are free and goes at the slower one's rate. Latency delays the arrival but
    does not hold the links.
    """
    start_s = max(now_s, source.free_s, target.free_s)
    rate = min(source.rate_bytes_per_s, target.rate_bytes_per_s)
    end_s = start_s + transfer_bytes / rate
    source.free_s = target.free_s = end_s
    return start_s, end_s + max(source.latency_s, target.latency_s)
