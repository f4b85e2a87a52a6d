"""The families of vLLM 0.32's page, in its order, and where a simulated replica keeps each number.

Only a table. Names, types, labels and help texts are vLLM's own (vllm-project/vllm 0.32.0,
`vllm/v1/metrics/loggers.py` and `vllm/distributed/kv_transfer/kv_connector/v1/nixl/stats.py`,
Apache-2.0). Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from serving.types import Phase

Source = int | str | tuple[str, ...]
"""A constant, an attribute of `ReplicaTelemetry`, or several whose sum it is."""

SINGLE_ANSWERS = "n"
"""The histogram of the request parameter `n`: one for every finished request."""

_EVERY = frozenset(Phase)
_DISAGGREGATED = frozenset({Phase.PREFILL, Phase.DECODE})
_DECODE = frozenset({Phase.DECODE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family: `series` pairs a value of the extra `label` (if any) with its source.

    `name` is the declared one: a counter's `_total` comes on the wire.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    label: str = ""
    series: tuple[tuple[str, Source], ...] = ()
    histogram: str = ""
    phases: frozenset[Phase] = _EVERY
    engine_label: bool = True


FAMILIES: tuple[Family, ...] = (
    Family(
        name="vllm:nixl_xfer_time_seconds",
        kind="histogram",
        help="Histogram of transfer duration for NIXL KV Cache transfers.",
        histogram="kv_transfer_time",
        phases=_DISAGGREGATED,
    ),
    Family(
        name="vllm:nixl_post_time_seconds",
        kind="histogram",
        help="Histogram of transfer post time for NIXL KV Cache transfers.",
        histogram="kv_post_time",
        phases=_DISAGGREGATED,
    ),
    Family(
        name="vllm:nixl_bytes_transferred",
        kind="histogram",
        help="Histogram of bytes transferred per NIXL KV Cache transfers.",
        histogram="kv_transfer_bytes",
        phases=_DISAGGREGATED,
    ),
    Family(
        name="vllm:nixl_num_descriptors",
        kind="histogram",
        help="Histogram of number of descriptors per NIXL  KV Cache transfers.",
        histogram="kv_descriptors",
        phases=_DISAGGREGATED,
    ),
    Family(
        name="vllm:nixl_num_failed_transfers",
        kind="counter",
        help=(
            "Number of failed NIXL KV Cache transfers, including handshake and notification "
            "failures. NOTE: KV expiry is tracked separately in vllm:nixl_num_kv_expired_reqs."
        ),
        series=(("", "kv_transfer_failures"),),
        phases=_DISAGGREGATED,
    ),
    Family(
        name="vllm:nixl_num_failed_notifications",
        kind="counter",
        help=(
            "Number of failed NIXL KV Cache notifications. Retained for compatibility; these "
            "failures are also included in vllm:nixl_num_failed_transfers."
        ),
        series=(("", "kv_failed_notifications"),),
        phases=_DISAGGREGATED,
    ),
    Family(
        name="vllm:nixl_num_kv_expired_reqs",
        kind="counter",
        help=(
            "Number of requests that had their KV expire. NOTE: This metric is tracked on the P "
            "instance."
        ),
        series=(("", "kv_expired_requests"),),
        phases=_DISAGGREGATED,
    ),
    Family(
        name="vllm:nixl_num_notifications_after_expiry",
        kind="counter",
        help=(
            "Number of completion notifications for requests that were no longer tracked, "
            "usually because their KV lease expired. The KV blocks may have been reused before "
            "the transfer finished. Counted per notification (one per remote rank), not per "
            "request."
        ),
        series=(("", 0),),
        phases=_DISAGGREGATED,
    ),
    Family(
        name="vllm:estimated_flops_per_gpu",
        kind="counter",
        help=(
            "Estimated number of floating point operations per GPU (for Model Flops Utilization "
            "calculations)."
        ),
        series=(("", 0),),
    ),
    Family(
        name="vllm:estimated_read_bytes_per_gpu",
        kind="counter",
        help=(
            "Estimated number of bytes read from memory per GPU (for Model Flops Utilization "
            "calculations)."
        ),
        series=(("", 0),),
    ),
    Family(
        name="vllm:estimated_write_bytes_per_gpu",
        kind="counter",
        help=(
            "Estimated number of bytes written to memory per GPU (for Model Flops Utilization "
            "calculations)."
        ),
        series=(("", 0),),
    ),
    Family(
        name="vllm:num_requests_running",
        kind="gauge",
        help="Number of requests in model execution batches.",
        series=(("", "running_requests"),),
    ),
    Family(
        name="vllm:num_requests_waiting",
        kind="gauge",
        help="Number of requests waiting to be processed.",
        series=(("", ("waiting_capacity_requests", "waiting_deferred_requests")),),
    ),
    Family(
        name="vllm:num_requests_waiting_by_reason",
        kind="gauge",
        help=(
            "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for "
            "scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, "
            "KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting."
        ),
        label="reason",
        series=(
            ("capacity", "waiting_capacity_requests"),
            ("deferred", "waiting_deferred_requests"),
        ),
    ),
    Family(
        name="vllm:num_requests_kv_fetch_by_stage",
        kind="gauge",
        help=(
            "Number of waiting requests by async KV load stage. Stage labels: 'waiting_to_start' "
            "= needs an async KV load that has not started; 'in_progress' = load started and not "
            "yet reported finished; 'completed_waiting' = load finished, request not running yet."
        ),
        label="stage",
        series=(
            ("waiting_to_start", "kv_fetch_waiting_to_start"),
            ("in_progress", "kv_fetch_in_progress"),
            ("completed_waiting", "kv_fetch_completed_waiting"),
        ),
        phases=_DECODE,
    ),
    Family(
        name="vllm:engine_sleep_state",
        kind="gauge",
        help=(
            "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is "
            "awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level "
            "2."
        ),
        label="sleep_state",
        series=(
            ("awake", 1),
            ("weights_offloaded", 0),
            ("discard_all", 0),
        ),
    ),
    Family(
        name="vllm:kv_cache_usage_perc",
        kind="gauge",
        help="KV-cache usage. 1 means 100 percent usage.",
        series=(("", "kv_used_ratio"),),
    ),
    Family(
        name="vllm:prefix_cache_queries",
        kind="counter",
        help="Prefix cache queries, in terms of number of queried tokens.",
        series=(("", "prefix_cache_queries"),),
    ),
    Family(
        name="vllm:prefix_cache_hits",
        kind="counter",
        help="Prefix cache hits, in terms of number of cached tokens.",
        series=(("", "prefix_cache_hits"),),
    ),
    Family(
        name="vllm:external_prefix_cache_queries",
        kind="counter",
        help=(
            "External prefix cache queries from KV connector cross-instance cache sharing, in "
            "terms of number of queried tokens."
        ),
        series=(("", "external_prefix_cache_queries"),),
    ),
    Family(
        name="vllm:external_prefix_cache_hits",
        kind="counter",
        help=(
            "External prefix cache hits from KV connector cross-instance cache sharing, in terms "
            "of number of cached tokens."
        ),
        series=(("", "external_prefix_cache_hits"),),
    ),
    Family(
        name="vllm:mm_cache_queries",
        kind="counter",
        help="Multi-modal cache queries, in terms of number of queried items.",
        series=(("", 0),),
    ),
    Family(
        name="vllm:mm_cache_hits",
        kind="counter",
        help="Multi-modal cache hits, in terms of number of cached items.",
        series=(("", 0),),
    ),
    Family(
        name="vllm:num_preemptions",
        kind="counter",
        help="Cumulative number of preemption from the engine.",
        series=(("", "preemptions"),),
    ),
    Family(
        name="vllm:prompt_tokens",
        kind="counter",
        help="Number of prefill tokens processed.",
        series=(("", "prompt_tokens"),),
    ),
    Family(
        name="vllm:prompt_tokens_by_source",
        kind="counter",
        help="Number of prompt tokens by source.",
        label="source",
        series=(
            ("local_compute", "computed_prompt_tokens"),
            ("local_cache_hit", "cached_prompt_tokens"),
            ("external_kv_transfer", "transferred_prompt_tokens"),
        ),
    ),
    Family(
        name="vllm:prompt_tokens_cached",
        kind="counter",
        help="Number of cached prompt tokens (local + external).",
        series=(("", ("cached_prompt_tokens", "transferred_prompt_tokens")),),
    ),
    Family(
        name="vllm:prompt_tokens_cached_by_source",
        kind="counter",
        help=(
            "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), "
            "host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or "
            "external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + "
            "vllm:external_prefix_cache_hits."
        ),
        label="source",
        series=(
            ("device", "cached_prompt_tokens"),
            ("host", 0),
            ("p2p", "transferred_prompt_tokens"),
            ("disk", 0),
            ("external_unspecified", 0),
        ),
    ),
    Family(
        name="vllm:generation_tokens",
        kind="counter",
        help="Number of generation tokens processed.",
        series=(("", "output_tokens"),),
    ),
    Family(
        name="vllm:request_success",
        kind="counter",
        help="Count of successfully processed requests.",
        label="finished_reason",
        series=(
            ("stop", "finished_stop"),
            ("length", "finished_length"),
            ("abort", 0),
            ("error", "finished_error"),
            ("repetition", 0),
        ),
    ),
    Family(
        name="vllm:admission_rejections",
        kind="counter",
        help="Number of admission attempts rejected by a queue limit, by reason.",
        label="reason",
        series=(
            ("max_num_queued_reqs", 0),
            ("max_num_queued_tokens", 0),
        ),
        engine_label=False,
    ),
    Family(
        name="vllm:request_prompt_tokens",
        kind="histogram",
        help="Number of prefill tokens processed.",
        histogram="request_prompt_tokens",
    ),
    Family(
        name="vllm:request_generation_tokens",
        kind="histogram",
        help="Number of generation tokens processed.",
        histogram="request_output_tokens",
    ),
    Family(
        name="vllm:iteration_tokens_total",
        kind="histogram",
        help="Histogram of number of tokens per engine_step.",
        histogram="step_tokens",
    ),
    Family(
        name="vllm:request_max_num_generation_tokens",
        kind="histogram",
        help="Histogram of maximum number of requested generation tokens.",
        histogram="request_output_tokens",
    ),
    Family(
        name="vllm:request_params_n",
        kind="histogram",
        help="Histogram of the n request parameter.",
        histogram=SINGLE_ANSWERS,
    ),
    Family(
        name="vllm:request_params_max_tokens",
        kind="histogram",
        help="Histogram of the max_tokens request parameter.",
        histogram="request_max_tokens",
    ),
    Family(
        name="vllm:time_to_first_token_seconds",
        kind="histogram",
        help="Histogram of time to first token in seconds.",
        histogram="ttft",
    ),
    Family(
        name="vllm:inter_token_latency_seconds",
        kind="histogram",
        help="Histogram of inter-token latency in seconds.",
        histogram="itl",
    ),
    Family(
        name="vllm:request_time_per_output_token_seconds",
        kind="histogram",
        help="Histogram of time_per_output_token_seconds per request.",
        histogram="tpot",
    ),
    Family(
        name="vllm:e2e_request_latency_seconds",
        kind="histogram",
        help="Histogram of e2e request latency in seconds.",
        histogram="e2e",
    ),
    Family(
        name="vllm:request_queue_time_seconds",
        kind="histogram",
        help="Histogram of time spent in WAITING phase for request.",
        histogram="queue_time",
    ),
    Family(
        name="vllm:request_inference_time_seconds",
        kind="histogram",
        help="Histogram of time spent in RUNNING phase for request.",
        histogram="inference_time",
    ),
    Family(
        name="vllm:request_prefill_time_seconds",
        kind="histogram",
        help="Histogram of time spent in PREFILL phase for request.",
        histogram="prefill_time",
    ),
    Family(
        name="vllm:request_decode_time_seconds",
        kind="histogram",
        help="Histogram of time spent in DECODE phase for request.",
        histogram="decode_time",
    ),
    Family(
        name="vllm:request_num_preemptions",
        kind="histogram",
        help="Histogram of the number of times a request was preempted.",
        histogram="request_preemptions",
    ),
    Family(
        name="vllm:request_prefill_kv_computed_tokens",
        kind="histogram",
        help="Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        histogram="request_computed_tokens",
    ),
)
