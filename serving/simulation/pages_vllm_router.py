"""The `/metrics` page of vllm-router 0.1.17 in front of a simulated tier: the poorer router page.

Names and labels are those that the real one wrote with one prefill and one decode replica. It has
no histogram of first tokens or of gaps between tokens: only how long answers took to begin, and a
summary of the wait for decode whose quantiles, as the real ones after a quiet minute, are 0.
Series of errors are absent before the first error. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate

from serving.simulation.page_text import Labels, label_set, rust_text
from serving.simulation.replica import SimulatedReplica
from serving.simulation.telemetry import Histogram, RouterTelemetry

CONTENT_TYPE = "text/plain"
PREFIX = "vllm_router_"
ROUTE = {"route": "/v1/completions"}
UNKNOWN_WORKER = {"worker": "unknown"}  # the simulated router does not count errors by worker
DURATION_BOUNDS_S = (
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 45.0),
    *(60.0, 90.0, 120.0, 180.0, 240.0),
)
QUANTILES = ("0", "0.5", "0.9", "0.95", "0.99", "0.999", "1")

Samples = Iterable[tuple[Labels, float]]


class VllmRouterPage:
    """Renders the page. `policy` is the router's own word for how it picks a replica.

    An aggregated tier has other names (not captured: those of the router's source).
    """

    def __init__(self, *, policy: str, aggregated: bool) -> None:
        self._policy = policy
        self._aggregated = aggregated

    def render(
        self,
        router: RouterTelemetry,
        replicas: Iterable[SimulatedReplica],
        urls: Mapping[str, str],
    ) -> bytes:
        """The page that shows these numbers; `urls` says by replica where it listens.

        The real router names workers by URL. A replica that is gone keeps its counters, under its
        name where its URL is no longer known.
        """
        page = _Page(urls)
        attempts = _counted(router.attempts)
        page.family(
            "policy_decisions_total",
            "counter",
            [({"policy": self._policy, **page.worker(name)}, n) for name, n in attempts.items()],
        )
        page.by_worker("processed_requests_total", "counter", attempts)
        present = [replica for replica in replicas if replica.telemetry is not None]
        page.by_worker("worker_health", "gauge", {replica.name: 1 for replica in present})
        if self._aggregated:
            self._write_aggregated(page, router)
        else:
            self._write_disaggregated(page, router)
        return page.text().encode()

    def _write_aggregated(self, page: _Page, router: RouterTelemetry) -> None:
        page.count("requests_total", ROUTE, router.requests)
        page.count("request_errors_total", ROUTE, router.decode_errors)
        page.by_worker("running_requests", "gauge", router.active_decode_requests)
        page.histogram("request_duration_seconds", ROUTE, router.ttft)

    def _write_disaggregated(self, page: _Page, router: RouterTelemetry) -> None:
        prefilling = router.active_prefill_requests
        page.by_worker("pd_prefill_requests_total", "counter", _counted(router.prefill_requests))
        page.by_worker("pd_decode_requests_total", "counter", _counted(router.decode_requests))
        page.count("pd_requests_total", ROUTE, begun_requests(router))
        page.count("pd_prefill_errors_total", UNKNOWN_WORKER, router.prefill_errors)
        page.count("pd_decode_errors_total", UNKNOWN_WORKER, router.decode_errors)
        page.by_rank("pd_active_prefill_tokens", router.active_prefill_tokens)
        page.by_rank("pd_active_decode_requests", router.active_decode_requests)
        page.by_rank("pd_pending_decode_requests", router.pending_decode_requests)
        page.by_rank("pd_prefill_occupancy", prefilling)
        page.by_rank("pd_unknown_prefill_requests", dict.fromkeys(prefilling, 0))
        page.summary(
            "pd_decode_pending_seconds", router.decode_pending_s_sum, router.decode_pending_count
        )
        page.histogram("pd_request_duration_seconds", ROUTE, router.ttft)


def begun_requests(router: RouterTelemetry) -> int:
    """What `pd_requests_total` counts: requests whose prefill has answered, or failed."""
    return router.decode_pending_count + router.prefill_errors


def _counted(numbers: Mapping[str, int]) -> dict[str, int]:
    """A counter appears with its first event."""
    return {name: count for name, count in numbers.items() if count}


class _Page:
    """The text so far; families are parted by an empty line and have no HELP."""

    def __init__(self, urls: Mapping[str, str]) -> None:
        self._urls = urls
        self._lines: list[str] = []

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def worker(self, replica: str) -> dict[str, str]:
        return {"worker": self._urls.get(replica, replica)}

    def by_worker(self, name: str, kind: str, numbers: Mapping[str, int]) -> None:
        self.family(name, kind, [(self.worker(replica), n) for replica, n in numbers.items()])

    def by_rank(self, name: str, numbers: Mapping[str, int]) -> None:
        samples = [
            ({**self.worker(replica), "rank": "aggregate"}, n) for replica, n in numbers.items()
        ]
        self.family(name, "gauge", samples)

    def family(self, name: str, kind: str, samples: Samples) -> None:
        lines = [self._line(name, labels, value) for labels, value in samples]
        if lines:
            self._lines += [f"# TYPE {PREFIX}{name} {kind}", *lines, ""]

    def count(self, name: str, labels: Labels, count: int) -> None:
        self.family(name, "counter", [(labels, count)] if count else [])

    def summary(self, name: str, total_s: float, count: int) -> None:
        if not count:
            return
        self._lines += [
            f"# TYPE {PREFIX}{name} summary",
            *(self._line(name, {"quantile": quantile}, 0) for quantile in QUANTILES),
            *(self._line(f"{name}_sum", {}, total_s), self._line(f"{name}_count", {}, count), ""),
        ]

    def histogram(self, name: str, labels: Labels, histogram: Histogram) -> None:
        if not histogram.count:
            return
        buckets = [
            *zip(map(rust_text, DURATION_BOUNDS_S), rebucketed(histogram), strict=True),
            ("+Inf", histogram.count),
        ]
        self._lines += [
            f"# TYPE {PREFIX}{name} histogram",
            *(self._line(f"{name}_bucket", {**labels, "le": le}, n) for le, n in buckets),
            self._line(f"{name}_sum", labels, histogram.sum),
            self._line(f"{name}_count", labels, histogram.count),
            "",
        ]

    def _line(self, name: str, labels: Labels, value: float) -> str:
        return f"{PREFIX}{name}{label_set(labels, ordered=False)} {rust_text(value)}"


def rebucketed(histogram: Histogram) -> tuple[int, ...]:
    """Cumulative counts at this router's bounds: those of the next lower bound that was kept."""
    cumulative = [0, *accumulate(histogram.counts)]
    return tuple(cumulative[bisect_right(histogram.bounds, bound)] for bound in DURATION_BOUNDS_S)
