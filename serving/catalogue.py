"""Every series that phasewise reads: its name, type, unit, labels, meaning, and what absence means.

One row per name on the wire (a histogram's without `_bucket`, `_sum`, `_count`). Whoever asks a
page for a series, draws it or alerts on it, finds it here; dialects say how it maps to our words.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class MetricType(StrEnum):
    """The Prometheus types that are read."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Unit(StrEnum):
    """Base units. `INFO` series carry their content in labels and are always 1.

    `MILLISECONDS` is of one series of others that no longer exists; ours are never. `PRODUCT` is
    of the two units that the name says, for fits; nobody draws it.
    """

    SECONDS = "seconds"
    TOKENS = "tokens"
    BYTES = "bytes"
    REQUESTS = "requests"
    EVENTS = "events"
    RATIO = "ratio"
    INFO = "info"
    REPLICAS = "replicas"
    TOKENS_PER_S = "tokens/second"
    BYTES_PER_S = "bytes/second"
    REQUESTS_PER_S = "requests/second"
    EVENTS_PER_S = "events/second"
    MILLISECONDS = "milliseconds"
    PRODUCT = "product"


class Owner(StrEnum):
    """Who writes the series."""

    PROCESS = "process"
    VLLM = "vllm"
    STEPS = "phasewise-vllm-steps"
    EPP = "llm-d-epp"
    VLLM_ROUTER = "vllm-router"
    RECORDED = "recorded"
    PHASEWISE = "phasewise"


UNKNOWN = "the page is broken or of another version: not known, never zero"
OPTIONAL = "a version or a role without it: not known"
NOT_YET = "no such event so far, or another version: not known"
RENAMED = "read under its newer name"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One series. `field` is our word for it: a field of `ReplicaReading` or `RouterReading`."""

    name: str
    type: MetricType
    unit: Unit
    labels: tuple[str, ...]
    help: str
    absence: str
    owner: Owner
    field: str

    @property
    def sample_names(self) -> tuple[str, ...]:
        """The names of its lines on a page."""
        if self.type is MetricType.HISTOGRAM:
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)


_C, _G, _H = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM
_S, _T, _B, _R, _E = Unit.SECONDS, Unit.TOKENS, Unit.BYTES, Unit.REQUESTS, Unit.EVENTS
_ENGINE = ("engine", "model_name")
Row = tuple[str, MetricType, Unit, tuple[str, ...], str, str, str]

# fmt: off
_PROCESS: tuple[Row, ...] = (
    ("process_start_time_seconds", _G, _S, (), "process_start_time_s", OPTIONAL,
     "Unix time at which the process started; gone with several API servers in one process group"),
    ("process_cpu_seconds_total", _C, _S, (), "process_cpu_s", OPTIONAL,
     "CPU seconds of the API server: a page that stands still shows in it"),
)
_VLLM: tuple[Row, ...] = (
    ("vllm:num_requests_running", _G, _R, (), "running_requests", UNKNOWN,
     "requests in the running batch"),
    ("vllm:num_requests_waiting", _G, _R, (), "waiting_requests", UNKNOWN,
     "requests that wait for capacity or are deferred (remote KV, LoRA slot, grammar)"),
    ("vllm:num_requests_waiting_by_reason", _G, _R, ("reason",), "deferred_requests", OPTIONAL,
     "the same by reason: capacity or deferred"),
    ("vllm:kv_cache_usage_perc", _G, Unit.RATIO, (), "kv_used_ratio", UNKNOWN,
     "share of KV blocks in use, 0 to 1 in spite of its name; pinned KV counts"),
    ("vllm:gpu_cache_usage_perc", _G, Unit.RATIO, (), "kv_used_ratio", RENAMED,
     "old name of kv_cache_usage_perc, gone by 0.11"),
    ("vllm:cache_config_info", _G, Unit.INFO, ("kv_cache_size_tokens", "num_gpu_blocks",
     "block_size"), "kv_capacity_tokens", UNKNOWN,
     "cache configuration in labels: what the KV cache holds"),
    ("vllm:prompt_tokens_total", _C, _T, (), "prompt_tokens", UNKNOWN,
     "logical prompt length, counted again on the decode side"),
    ("vllm:prompt_tokens_by_source_total", _C, _T, ("source",), "computed_prompt_tokens", OPTIONAL,
     "the same by where the KV came from; only local_compute is prefill work (since about 0.16)"),
    ("vllm:prefix_cache_hits_total", _C, _T, (), "cached_prompt_tokens", UNKNOWN,
     "prompt tokens found in the local cache; used where prompt_tokens_by_source is missing"),
    ("vllm:gpu_prefix_cache_hits_total", _C, _T, (), "cached_prompt_tokens", RENAMED,
     "old name of prefix_cache_hits, gone by 0.11"),
    ("vllm:external_prefix_cache_hits_total", _C, _T, (), "transferred_prompt_tokens", OPTIONAL,
     "prompt tokens whose KV came through the connector"),
    ("vllm:generation_tokens_total", _C, _T, (), "output_tokens", UNKNOWN,
     "tokens sampled, with the one per request that a prefill replica throws away"),
    ("vllm:request_success_total", _C, _R, ("finished_reason",), "finished_requests", UNKNOWN,
     "requests that ended, errors among them; cancelled ones are not counted"),
    ("vllm:num_preemptions_total", _C, _E, (), "preemptions", UNKNOWN,
     "requests put out of the batch for lack of KV blocks"),
    ("vllm:iteration_tokens_total", _H, _T, (), "step_tokens", UNKNOWN,
     "tokens per engine step; its count is the number of steps"),
    ("vllm:time_to_first_token_seconds", _H, _S, (), "ttft", UNKNOWN,
     "arrival at this replica to its first token: not the user's TTFT when phases are apart"),
    ("vllm:inter_token_latency_seconds", _H, _S, (), "itl", UNKNOWN,
     "gaps between output events; empty on prefill"),
    ("vllm:time_per_output_token_seconds", _H, _S, (), "itl", RENAMED,
     "old name of inter_token_latency_seconds, removed in 0.13"),
    ("vllm:request_time_per_output_token_seconds", _H, _S, (), "tpot", OPTIONAL,
     "mean gap between the tokens of an ended request; 0 for every request on prefill, of one token"
     " or failed early"),
    ("vllm:request_queue_time_seconds", _H, _S, (), "queue_time", UNKNOWN,
     "arrival to first scheduled; on decode it includes the KV transfer"),
    ("vllm:request_prefill_time_seconds", _H, _S, (), "prefill_time", UNKNOWN,
     "first scheduled to first token"),
    ("vllm:request_decode_time_seconds", _H, _S, (), "decode_time", UNKNOWN,
     "first to last token; 0 for every request on prefill"),
    ("vllm:request_prompt_tokens", _H, _T, (), "request_prompt_tokens", UNKNOWN,
     "prompt length of ended requests"),
    ("vllm:request_generation_tokens", _H, _T, (), "request_output_tokens", UNKNOWN,
     "output length of ended requests; 1 on prefill"),
    ("vllm:nixl_xfer_time_seconds", _H, _S, (), "kv_transfer_time", OPTIONAL,
     "time of a KV transfer, per rank, on the side that pulls"),
    ("vllm:nixl_bytes_transferred", _H, _B, (), "kv_transfer_bytes", OPTIONAL,
     "bytes of a KV transfer, per rank, on the side that pulls"),
    ("vllm:nixl_num_failed_transfers_total", _C, _E, (), "kv_transfer_failures", OPTIONAL,
     "failed transfers; since September 2026 failed handshakes and notifications too"),
    ("vllm:nixl_num_kv_expired_reqs_total", _C, _R, (), "kv_expired_requests", OPTIONAL,
     "requests on prefill whose KV lease ran out unread"),
)
# fmt: on
_EPP_LABELS = ("model_name", "target_model_name", "fairness_id", "priority")
_EPP_GENERATIONS = ("llm_d_epp", "llm_d_router_epp", "inference_objective", "inference_model")
# fmt: off
_EPP: tuple[tuple[str, MetricType, Unit, tuple[str, ...], str, tuple[str | None, ...]], ...] = (
    # our word, type, unit, labels beyond the common ones, meaning, its name in each generation
    ("requests", _C, _R, (), "requests at their arrival",
     ("request_total", "request_total", "request_total", "request_total")),
    ("failed_requests", _C, _R, ("error_code",), "requests that failed",
     ("request_error_total", "request_error_total",
      "request_error_total", "request_error_total")),
    ("running_requests", _G, _R, (), "requests that have arrived and not ended",
     ("request_running", "running_requests", "running_requests", "running_requests")),
    ("input_tokens", _H, _T, (), "prompt length, at the end of a request",
     ("request_input_tokens", "input_tokens", "input_tokens", "input_tokens")),
    ("cached_tokens", _H, _T, (), "prompt tokens that the engine reported as cached",
     ("request_cached_tokens", "prompt_cached_tokens", "prompt_cached_tokens", None)),
    ("output_tokens", _H, _T, (), "output length, at the end of a request",
     ("request_output_tokens", "output_tokens", "output_tokens", "output_tokens")),
    ("ttft", _H, _S, ("streaming",), "the user's TTFT; the whole duration where not streamed",
     ("request_ttft_seconds", "request_ttft_seconds",
      "request_ttft_seconds", "request_ttft_seconds")),
    ("tpot", _H, _S, (), "mean gap between tokens of a request",
     ("request_streaming_tpot_seconds", "request_streaming_tpot_seconds",
      "request_tpot_seconds", "request_tpot_seconds")),
    ("itl", _H, _S, (), "gaps between tokens",
     ("request_streaming_itl_seconds", "request_streaming_itl_seconds",
      "inter_token_latency_seconds", None)),
)
_VLLM_ROUTER: tuple[Row, ...] = (
    ("vllm_router_processed_requests_total", _C, _R, ("worker",), "requests", NOT_YET,
     "requests given to a worker; counted at prefill and at decode where phases are apart"),
    ("vllm_router_pd_requests_total", _C, _R, ("route",), "requests", NOT_YET,
     "requests whose answer has begun (prefill and decode apart)"),
    ("vllm_router_requests_total", _C, _R, ("route",), "requests", NOT_YET,
     "requests that were answered (aggregated)"),
    ("vllm_router_pd_prefill_requests_total", _C, _R, ("worker",), "requests", NOT_YET,
     "prefills that were answered; read to see that phases are apart"),
    ("vllm_router_pd_active_prefill_tokens", _G, _T, ("worker", "rank"), "requests", NOT_YET,
     "prompt tokens under way at prefill; read to see that phases are apart"),
    ("vllm_router_pd_active_decode_requests", _G, _R, ("worker", "rank"), "running_requests",
     NOT_YET,
     "requests that decode is answering"),
    ("vllm_router_pd_pending_decode_requests", _G, _R, ("worker", "rank"), "running_requests",
     NOT_YET,
     "requests that wait for their prefill"),
    ("vllm_router_running_requests", _G, _R, ("worker",), "running_requests", NOT_YET,
     "requests under way (aggregated)"),
    ("vllm_router_pd_errors_total", _C, _E, ("error_type",), "failed_requests", NOT_YET,
     "requests that no pair could take"),
    ("vllm_router_pd_prefill_errors_total", _C, _E, ("worker",), "failed_requests", NOT_YET,
     "failed prefills"),
    ("vllm_router_pd_decode_errors_total", _C, _E, ("worker",), "failed_requests", NOT_YET,
     "failed decodes"),
    ("vllm_router_pd_stream_errors_total", _C, _E, ("worker",), "failed_requests", NOT_YET,
     "answers that broke off"),
    ("vllm_router_request_errors_total", _C, _E, ("route", "error_type"), "failed_requests",
     NOT_YET,
     "failed requests (aggregated)"),
)
# fmt: on


def _specs(owner: Owner, rows: Iterable[Row], common: tuple[str, ...]) -> Iterable[MetricSpec]:
    for name, kind, unit, labels, field, absence, meaning in rows:
        yield MetricSpec(
            name=name,
            type=kind,
            unit=unit,
            labels=(*common, *labels),
            help=meaning,
            absence=absence,
            owner=owner,
            field=field,
        )


def _epp_rows() -> Iterable[Row]:
    for field, kind, unit, labels, meaning, names in _EPP:
        for generation, name in zip(_EPP_GENERATIONS, names, strict=True):
            if name is not None:
                absence = NOT_YET if generation == _EPP_GENERATIONS[0] else RENAMED
                yield f"{generation}_{name}", kind, unit, labels, field, absence, meaning


CATALOGUE: tuple[MetricSpec, ...] = (
    *_specs(Owner.PROCESS, _PROCESS, ()),
    *_specs(Owner.VLLM, _VLLM, _ENGINE),
    *_specs(Owner.EPP, _epp_rows(), _EPP_LABELS),
    *_specs(Owner.VLLM_ROUTER, _VLLM_ROUTER, ()),
)
"""All rows, by owner."""

BY_NAME: Mapping[str, MetricSpec] = {spec.name: spec for spec in CATALOGUE}
"""The rows by their name on the wire."""
