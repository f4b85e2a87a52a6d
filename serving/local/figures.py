"""The few figures that a supervisor needs of a page: who is served there, and how much KV it holds.

Not the dialects' reading: no rates, no histograms, only what tells whether a replica is empty and
what is lost with it. Names are of vLLM 0.32 and vllm-router 0.1.17.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?[ \t]+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_IN_FLIGHT = (
    "vllm_router_pd_active_decode_requests",
    "vllm_router_pd_pending_decode_requests",
    "vllm_router_pd_prefill_occupancy",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What an engine's page said last; `None` where it did not say."""

    running: float | None = None
    waiting: float | None = None
    kv_ratio: float | None = None
    kv_capacity_tokens: float | None = None

    @property
    def requests(self) -> float | None:
        """Running and waiting ones."""
        if self.running is None or self.waiting is None:
            return None
        return self.running + self.waiting

    @property
    def kv_tokens(self) -> float | None:
        """Tokens whose KV the replica holds."""
        if self.kv_ratio is None or self.kv_capacity_tokens is None:
            return None
        return round(self.kv_ratio * self.kv_capacity_tokens)


UNKNOWN_FIGURES = Figures()


def engine_figures(page: str) -> Figures:
    """The figures of a vLLM page, summed over its engines."""
    sums: dict[str, float] = {}
    capacity: float | None = None
    for name, labels, value in _samples(page, "vllm:"):
        if name in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
            sums[name] = sums.get(name, 0.0) + value
        elif name == "vllm:kv_cache_usage_perc":
            sums[name] = max(sums.get(name, 0.0), value)
        elif name == "vllm:cache_config_info":
            blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
            if blocks.isdecimal() and size.isdecimal():
                capacity = (capacity or 0.0) + float(int(blocks) * int(size))
    return Figures(
        running=sums.get("vllm:num_requests_running"),
        waiting=sums.get("vllm:num_requests_waiting"),
        kv_ratio=sums.get("vllm:kv_cache_usage_perc"),
        kv_capacity_tokens=capacity,
    )


def router_in_flight(page: str) -> Mapping[str, float]:
    """Requests that the router has for each worker, by the worker's `host:port`.

    It chooses prefill and decode at once when a request comes: one that waits for its prefill is
    already counted at its decode.
    """
    counts: dict[str, float] = {}
    for name, labels, value in _samples(page, "vllm_router_"):
        if name in _IN_FLIGHT:
            worker = labels.get("worker", "").removeprefix("http://").rstrip("/")
            counts[worker] = counts.get(worker, 0.0) + value
    return counts


def _samples(page: str, prefix: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in page.splitlines():
        found = _LINE.match(line) if line.startswith(prefix) else None
        if found is None:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        if value == value:
            yield found[1], dict(_LABEL.findall(found[2] or "")), value
