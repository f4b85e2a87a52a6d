"""vllm-router's page in our words: arrivals, failures and what is in flight; no latency of users.

Names are of vllm-router 0.1.17 (vllm-project/router, Apache-2.0, `src/metrics.rs`).
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from serving.dialects.page import Page, first_present, total
from serving.types import RouterReading

SOURCE = "vllm-router"
PROCESSED = "vllm_router_processed_requests_total"
PD_REQUESTS = "vllm_router_pd_requests_total"
REQUESTS = "vllm_router_requests_total"
PD_ACTIVE = "vllm_router_pd_active_decode_requests"
PD_PREFILL = "vllm_router_pd_prefill_requests_total"
PD_PREFILL_TOKENS = "vllm_router_pd_active_prefill_tokens"
PD_PENDING = "vllm_router_pd_pending_decode_requests"
RUNNING = "vllm_router_running_requests"
PD_ERRORS = (
    "vllm_router_pd_errors_total",
    "vllm_router_pd_prefill_errors_total",
    "vllm_router_pd_decode_errors_total",
    "vllm_router_pd_stream_errors_total",
)
ERRORS = "vllm_router_request_errors_total"

WANTED: frozenset[str] = frozenset(
    [
        *(PROCESSED, PD_REQUESTS, REQUESTS, PD_PREFILL, PD_PREFILL_TOKENS),
        *(PD_ACTIVE, PD_PENDING, RUNNING, *PD_ERRORS, ERRORS),
    ]
)
"""Every sample name that this dialect asks the page for."""


def router_reading(page: Page, *, at_s: float) -> RouterReading:
    """What the router's page says; a series appears with its first request or error.

    `processed` counts a request when a worker is chosen for it, so it is the arrivals; where
    prefill and decode are apart it counts once at each of the two workers, so half of it is. The
    router's own request counters move only when an answer begins, which hides what waits.
    """
    disaggregated = PD_PREFILL in page.samples or PD_PREFILL_TOKENS in page.samples
    processed = total(page, PROCESSED)
    if processed is not None:
        requests: float | None = processed / 2.0 if disaggregated else processed
    else:
        requests = _first(page, (PD_REQUESTS, REQUESTS))
    in_flight = _both(total(page, PD_ACTIVE), total(page, PD_PENDING))
    return RouterReading(
        at_s=at_s,
        source=SOURCE,
        requests=requests,
        failed_requests=_sum_of_present(page, (*PD_ERRORS, ERRORS)),
        running_requests=in_flight if in_flight is not None else total(page, RUNNING),
    )


def _first(page: Page, names: tuple[str, ...]) -> float | None:
    name = first_present(page, names)
    return total(page, name) if name is not None else None


def _both(one: float | None, other: float | None) -> float | None:
    return one + other if one is not None and other is not None else None


def _sum_of_present(page: Page, names: tuple[str, ...]) -> float | None:
    """The kinds of error seen so far; unknown while none has happened or if one is unreadable."""
    present = [total(page, name) for name in names if name in page.samples or name in page.broken]
    known = [value for value in present if value is not None]
    return sum(known) if known and len(known) == len(present) else None
