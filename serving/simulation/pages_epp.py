"""The `/metrics` page of llm-d's endpoint picker in front of a simulated tier.

Names, labels and help texts are those of llm-d/llm-d-router (Apache-2.0, `pkg/epp/metrics/`,
`docs/metrics.md`), of the generation `llm_d_epp_`; the older names can be written beside them, as
the real one does. Like every Go page, a family is absent until its first event: a fresh router
says nothing about errors, nor about requests. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from serving.simulation.page_text import Labels, go_family, go_histogram_family
from serving.simulation.replica import SimulatedReplica
from serving.simulation.telemetry import Histogram, ReplicaTelemetry, RouterTelemetry
from serving.types import ReplicaState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
PREFIX = "llm_d_epp_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family by its current name (less the prefix), and by the name that it replaces.

    `old_labels` maps the labels that the older one has to their current names.
    """

    help: str
    old_name: str = ""
    old_labels: tuple[tuple[str, str], ...] = ()


def _same(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in names)


_MODEL = _same("model_name", "target_model_name")
_POOL = _same("name")

FAMILIES: dict[str, Family] = {
    "request_total": Family(
        help="Total number of processed requests.",
        old_name="inference_objective_request_total",
        old_labels=(*_MODEL, ("priority", "priority")),
    ),
    "request_error_total": Family(
        help="Total number of request errors.",
        old_name="inference_objective_request_error_total",
        old_labels=(*_MODEL, ("error_code", "error_code")),
    ),
    "request_running": Family(
        help="Current number of active running requests.",
        old_name="inference_objective_running_requests",
        old_labels=_same("model_name"),
    ),
    "request_duration_seconds": Family(
        help="End-to-end request latency distribution in seconds.",
        old_name="inference_objective_request_duration_seconds",
        old_labels=_MODEL,
    ),
    "request_input_tokens": Family(
        help="Input token count distribution per request.",
        old_name="inference_objective_input_tokens",
        old_labels=_MODEL,
    ),
    "request_output_tokens": Family(
        help="Output token count distribution per request.",
        old_name="inference_objective_output_tokens",
        old_labels=_MODEL,
    ),
    "request_cached_tokens": Family(
        help="Distribution of prompt tokens read from cache per request, as reported by the model "
        "server in the response.",
        old_name="inference_objective_prompt_cached_tokens",
        old_labels=_MODEL,
    ),
    "request_ttft_seconds": Family(
        help="Time to first token in seconds, measured from request received to first response "
        "byte. For non-streaming requests, this equals total request duration."
    ),
    "request_streaming_tpot_seconds": Family(
        help="Average time per output token in seconds for streaming requests, computed as "
        "(e2e - TTFT) / (output_tokens - 1)."
    ),
    "request_streaming_itl_seconds": Family(
        help="Inter-token latency in seconds for streaming requests, measured as the time between "
        "consecutive response body chunks."
    ),
    "scheduler_attempts_total": Family(
        help="Total number of scheduling attempts.",
        old_name="inference_extension_scheduler_attempts_total",
        old_labels=(
            *_same("status", "target_model_name", "namespace", "port"),
            ("pod_name", "endpoint_name"),
        ),
    ),
    "disagg_decision_total": Family(
        help="Total number of disaggregation routing decisions made",
        old_name="llm_d_inference_scheduler_disagg_decision_total",
        old_labels=_same("model_name", "decision_type"),
    ),
    "inflight_tokens": Family(
        help="Current number of in-flight tokens per endpoint (uncached prompt tokens, optionally "
        "plus estimated output), as tracked by the in-flight load producer."
    ),
    "inflight_requests": Family(
        help="Current number of in-flight requests per endpoint, as tracked by the in-flight load "
        "producer."
    ),
    "average_kv_cache_utilization": Family(
        help="The average kv cache utilization for an inference server pool.",
        old_name="inference_pool_average_kv_cache_utilization",
        old_labels=_POOL,
    ),
    "average_queue_size": Family(
        help="The average number of requests pending in the model server queue.",
        old_name="inference_pool_average_queue_size",
        old_labels=_POOL,
    ),
    "average_running_requests": Family(
        help="The average number of running requests across model servers in the pool.",
        old_name="inference_pool_average_running_requests",
        old_labels=_POOL,
    ),
    "ready_endpoints": Family(
        help="The number of ready endpoints in the inference server pool.",
        old_name="inference_pool_ready_pods",
        old_labels=_POOL,
    ),
    "per_endpoint_queue_size": Family(
        help="The total number of requests pending in the model server queue for each underlying "
        "endpoint."
    ),
}

Samples = Sequence[tuple[Labels, float]]


class EppPage:
    """Renders the router's page; `deprecated_names` writes the older names too."""

    def __init__(
        self,
        *,
        model: str,
        inference_pool: str,
        namespace: str = "default",
        deprecated_names: bool = False,
    ) -> None:
        self._model = model
        self._namespace = namespace
        self._deprecated_names = deprecated_names
        self._pool_labels: Labels = {"name": inference_pool}
        self._request_labels: Labels = {
            **{"fairness_id": "", "model_name": model, "priority": "0"},
            "target_model_name": model,
        }
        self._texts: dict[str, str] = {}

    def render(self, router: RouterTelemetry, replicas: Iterable[SimulatedReplica]) -> bytes:
        """The page that shows these numbers, families in the order of their names."""
        self._texts = {}
        self._write_requests(router)
        self._write_scheduling(router)
        self._write_load(router)
        self._write_pool(list(replicas))
        return "".join(text for _, text in sorted(self._texts.items())).encode()

    def _write_requests(self, router: RouterTelemetry) -> None:
        labels = self._request_labels
        if router.requests:
            self._write("request_total", "counter", [(labels, router.requests)])
            self._write("request_running", "gauge", [(labels, router.running)])
        if router.failed:
            failed = {**labels, "error_code": "ModelServerError"}
            self._write("request_error_total", "counter", [(failed, router.failed)])
        self._write_histogram("request_duration_seconds", labels, router.request_duration)
        self._write_histogram("request_input_tokens", labels, router.input_tokens)
        self._write_histogram("request_output_tokens", labels, router.output_tokens)
        self._write_histogram("request_cached_tokens", labels, router.cached_tokens)
        self._write_histogram("request_ttft_seconds", {**labels, "streaming": "true"}, router.ttft)
        self._write_histogram("request_streaming_tpot_seconds", labels, router.tpot)
        self._write_histogram("request_streaming_itl_seconds", labels, router.itl)

    def _write_scheduling(self, router: RouterTelemetry) -> None:
        attempts: list[tuple[Labels, float]] = [
            (self._attempt_labels(name, status="success"), count)
            for name, count in sorted(router.attempts.items())
            if count
        ]
        if router.failed_attempts:
            attempts.append((self._attempt_labels("", status="failure"), router.failed_attempts))
        self._write("scheduler_attempts_total", "counter", attempts)
        decider = {
            "plugin_name": "disagg-profile-handler",
            "plugin_type": "disagg-profile-handler",
            "model_name": self._model,
        }
        decisions = (
            ("decode-only", router.decode_only_decisions),
            ("prefill-decode", router.disaggregated_decisions),
        )
        samples = [
            ({**decider, "decision_type": kind}, count) for kind, count in decisions if count
        ]
        self._write("disagg_decision_total", "counter", samples)

    def _write_load(self, router: RouterTelemetry) -> None:
        for name, load in (
            ("inflight_tokens", router.active_prefill_tokens),
            ("inflight_requests", router.active_decode_requests),
        ):
            samples = [
                (self._load_labels(endpoint), count) for endpoint, count in sorted(load.items())
            ]
            self._write(name, "gauge", samples)

    def _write_pool(self, replicas: Sequence[SimulatedReplica]) -> None:
        """Averages over prefill and decode together, as the real ones are."""
        pages = {
            replica.name: replica.telemetry
            for replica in sorted(replicas, key=lambda replica: replica.name)
            if replica.telemetry is not None
        }
        averages: dict[str, list[float]] = {
            "average_kv_cache_utilization": [page.kv_used_ratio for page in pages.values()],
            "average_queue_size": [_waiting(page) for page in pages.values()],
            "average_running_requests": [page.running_requests for page in pages.values()],
        }
        for name, values in averages.items():
            self._write(name, "gauge", [(self._pool_labels, _mean(values))])
        ready = sum(replica.state is ReplicaState.READY for replica in replicas)
        self._write("ready_endpoints", "gauge", [(self._pool_labels, ready)])
        queues = [
            ({**self._pool_labels, "model_server_endpoint": name}, _waiting(page))
            for name, page in pages.items()
        ]
        self._write("per_endpoint_queue_size", "gauge", queues)

    def _write(self, name: str, kind: str, samples: Samples) -> None:
        if not samples:
            return
        family = FAMILIES[name]
        current = PREFIX + name
        self._texts[current] = go_family(current, kind, f"[ALPHA] {family.help}", samples)
        if self._deprecated_names and family.old_name:
            old = [(_old(labels, family), value) for labels, value in samples]
            text = _old_help(name, family)
            self._texts[family.old_name] = go_family(family.old_name, kind, text, old)

    def _write_histogram(self, name: str, labels: Labels, histogram: Histogram) -> None:
        if not histogram.count:
            return
        family = FAMILIES[name]
        current = PREFIX + name
        self._texts[current] = go_histogram_family(
            current, f"[ALPHA] {family.help}", labels, histogram
        )
        if self._deprecated_names and family.old_name:
            self._texts[family.old_name] = go_histogram_family(
                family.old_name, _old_help(name, family), _old(labels, family), histogram
            )

    def _attempt_labels(self, endpoint: str, *, status: str) -> Labels:
        return {
            "endpoint_name": endpoint,
            "namespace": self._namespace if endpoint else "",
            "port": "8000" if endpoint else "",
            "status": status,
            "target_model_name": self._model,
        }

    def _load_labels(self, endpoint: str) -> Labels:
        return {
            **{"endpoint_name": endpoint, "fairness_id": "", "namespace": self._namespace},
            **{"priority": "0", "producer_name": "inflight-load-producer"},
        }


def _old(labels: Labels, family: Family) -> Labels:
    return {old: labels[current] for old, current in family.old_labels}


def _old_help(name: str, family: Family) -> str:
    return f"[ALPHA] [Deprecated: Use {PREFIX}{name}] {family.help}"


def _waiting(page: ReplicaTelemetry) -> int:
    return page.waiting_capacity_requests + page.waiting_deferred_requests


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values) if values else 0.0
