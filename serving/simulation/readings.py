"""Readings taken straight from a simulated tier's numbers: what parsing its pages would give.

For runs that need no HTTP. Equal in every field to the page read back by the collector.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Literal

from serving.simulation.pages_vllm_router import begun_requests
from serving.simulation.replica import SimulatedReplica
from serving.simulation.seen import SeenTelemetry
from serving.simulation.telemetry import Histogram, ReplicaTelemetry, RouterTelemetry
from serving.types import HistogramReading, Phase, ReplicaReading, RouterReading

RouterSource = Literal["epp", "vllm-router"]


def reading_of(
    replica: SimulatedReplica, at_s: float, *, seen: SeenTelemetry | None = None
) -> ReplicaReading | None:
    """What the replica's page says at `at_s`; `None` while it starts or its page is missing.

    A late or frozen page needs the memory of `seen`; without one, ValueError.
    """
    if seen is not None:
        telemetry = seen.of(replica)
    elif replica.page_fault in (None, "missing"):
        telemetry = replica.telemetry if replica.page_fault is None else None
    else:
        raise ValueError(f"{replica.name}: a {replica.page_fault} page needs `seen`")
    if telemetry is None:
        return None
    return telemetry_reading(
        telemetry,
        replica=replica.name,
        at_s=at_s,
        phase=replica.phase,
        kv_capacity_tokens=replica.kv_capacity_tokens,
    )


def telemetry_reading(
    telemetry: ReplicaTelemetry,
    *,
    replica: str,
    at_s: float,
    phase: Phase,
    kv_capacity_tokens: int,
) -> ReplicaReading:
    """One engine's numbers in our words. An aggregated one has no KV transfers to speak of."""
    numbers = telemetry
    transfers = phase is not Phase.BOTH
    return ReplicaReading(
        replica=replica,
        at_s=at_s,
        process_start_time_s=numbers.process_start_time_s,
        process_cpu_s=numbers.process_cpu_s,
        running_requests=float(numbers.running_requests),
        waiting_requests=float(
            numbers.waiting_capacity_requests + numbers.waiting_deferred_requests
        ),
        deferred_requests=float(numbers.waiting_deferred_requests),
        kv_used_ratio=numbers.kv_used_ratio,
        kv_capacity_tokens=float(kv_capacity_tokens),
        prompt_tokens=float(numbers.prompt_tokens),
        computed_prompt_tokens=float(numbers.computed_prompt_tokens),
        cached_prompt_tokens=float(numbers.cached_prompt_tokens),
        transferred_prompt_tokens=float(numbers.transferred_prompt_tokens),
        output_tokens=float(numbers.output_tokens),
        finished_requests=float(numbers.finished_stop + numbers.finished_length),
        failed_requests=float(numbers.finished_error),
        preemptions=float(numbers.preemptions),
        step_tokens=histogram_reading(numbers.step_tokens),
        ttft=histogram_reading(numbers.ttft),
        itl=histogram_reading(numbers.itl),
        tpot=histogram_reading(numbers.tpot),
        queue_time=histogram_reading(numbers.queue_time),
        prefill_time=histogram_reading(numbers.prefill_time),
        decode_time=histogram_reading(numbers.decode_time),
        request_prompt_tokens=histogram_reading(numbers.request_prompt_tokens),
        request_output_tokens=histogram_reading(numbers.request_output_tokens),
        kv_transfer_time=histogram_reading(numbers.kv_transfer_time) if transfers else None,
        kv_transfer_bytes=histogram_reading(numbers.kv_transfer_bytes) if transfers else None,
        kv_transfer_failures=float(numbers.kv_transfer_failures) if transfers else None,
        kv_expired_requests=float(numbers.kv_expired_requests) if transfers else None,
    )


def router_reading_of(
    router: RouterTelemetry, at_s: float, *, source: RouterSource, aggregated: bool = False
) -> RouterReading:
    """What the router's page says at `at_s`; what has not happened yet is absent there: `None`.

    `aggregated` matters for vllm-router only, which names things otherwise then.
    """
    if source == "epp":
        return _epp_reading(router, at_s)
    requests, failed, running = (
        _aggregated_counts(router) if aggregated else _disaggregated_counts(router)
    )
    return RouterReading(
        at_s=at_s,
        source="vllm-router",
        requests=requests,
        failed_requests=failed,
        running_requests=running,
    )


def _epp_reading(router: RouterTelemetry, at_s: float) -> RouterReading:
    return RouterReading(
        at_s=at_s,
        source="epp",
        requests=_counted(router.requests),
        failed_requests=_counted(router.failed),
        running_requests=float(router.running) if router.requests else None,
        input_tokens=_observed(router.input_tokens),
        cached_tokens=_observed(router.cached_tokens),
        output_tokens=_observed(router.output_tokens),
        ttft=_observed(router.ttft),
        itl=_observed(router.itl),
        tpot=_observed(router.tpot),
    )


Counts = tuple[float | None, float | None, float | None]
"""Requests, failed requests, running requests."""


def _aggregated_counts(router: RouterTelemetry) -> Counts:
    active = router.active_decode_requests
    running = float(sum(active.values())) if active else None
    return _counted(router.requests), _counted(router.decode_errors), running


def _disaggregated_counts(router: RouterTelemetry) -> Counts:
    """Each request is processed by two workers: half of that is the arrivals that were placed."""
    active, pending = router.active_decode_requests, router.pending_decode_requests
    if not (active or pending or router.decode_errors or begun_requests(router)):
        return None, None, None
    processed = _counted(sum(router.attempts.values()))
    failed = _counted(router.prefill_errors + router.decode_errors)
    known = bool(active) and bool(pending)
    running = float(sum(active.values()) + sum(pending.values())) if known else None
    return processed / 2.0 if processed is not None else None, failed, running


def _counted(count: int) -> float | None:
    """A counter that is absent until it has counted something."""
    return float(count) if count else None


def _observed(histogram: Histogram) -> HistogramReading | None:
    return histogram_reading(histogram) if histogram.count else None


def histogram_reading(histogram: Histogram) -> HistogramReading:
    """A histogram as a page carries it: cumulative, with +Inf apart."""
    *cumulative, count = accumulate(histogram.counts)
    return HistogramReading(
        bounds=histogram.bounds,
        cumulative=tuple(map(float, cumulative)),
        sum=histogram.sum,
        count=float(count),
    )
