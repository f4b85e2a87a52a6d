"""Series that are only recognised: they tell a version, a role or a state, no number is taken.

Most are names that vLLM has dropped, told so that whoever still asks for them learns why the answer
is empty. Types and units as in vllm-project/vllm (Apache-2.0), `vllm/v1/metrics/`, `docs/usage/`;
the router's as on a page of vllm-router 0.1.17.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from serving.catalogue import MetricSpec, MetricType, Owner, Unit

_C, _G, _H = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM
_GONE = "a version that has dropped it, which is nearly all"
_OTHER = "another version or role"

# fmt: off
_ROWS: tuple[tuple[str, MetricType, Unit, tuple[str, ...], str, str], ...] = (
    ("vllm:engine_sleep_state", _G, Unit.INFO, ("sleep_state",), _OTHER,
     "1 for the state that the engine is in: a sleeping one is healthy and serves nothing"),
    ("vllm:num_requests_kv_fetch_by_stage", _G, Unit.REQUESTS, ("stage",), _OTHER,
     "requests whose KV is fetched, by stage: only engines that take KV have it"),
    ("vllm:e2e_request_latency_seconds", _H, Unit.SECONDS, (), _OTHER,
     "arrival to the last token at this replica; its count tells ended requests"),
    ("vllm:prefix_cache_queries_total", _C, Unit.TOKENS, (), _OTHER,
     "prompt tokens looked up in the local cache"),
    ("vllm:spec_decode_num_accepted_tokens_total", _C, Unit.TOKENS, (), _OTHER,
     "drafted tokens that were accepted"),
    ("vllm:request_prefill_kv_computed_tokens", _H, Unit.TOKENS, (), _OTHER,
     "prompt length less what was cached; on decode the whole prompt, in spite of its help"),
    ("vllm:request_max_num_generation_tokens", _H, Unit.TOKENS, (), _OTHER,
     "longest answer of each request"),
    ("vllm:max_num_generation_tokens", _H, Unit.TOKENS, (), _GONE,
     "request_max_num_generation_tokens as llm-d-inference-sim names it"),
    ("vllm:gpu_prefix_cache_queries_total", _C, Unit.TOKENS, (), _GONE,
     "old name of prefix_cache_queries, gone by 0.11"),
    ("vllm:prompt_tokens_recomputed_total", _C, Unit.TOKENS, (), _GONE,
     "prompt tokens computed again, removed in April 2026"),
    ("vllm:num_requests_swapped", _G, Unit.REQUESTS, (), _GONE,
     "requests swapped to the CPU by the first engine (V0)"),
    ("vllm:cpu_cache_usage_perc", _G, Unit.RATIO, (), _GONE, "use of V0's CPU cache, 0 to 1"),
    ("vllm:gpu_prefix_cache_hit_rate", _G, Unit.RATIO, (), _GONE, "V0's prefix hit rate"),
    ("vllm:cpu_prefix_cache_hit_rate", _G, Unit.RATIO, (), _GONE, "the same of V0's CPU cache"),
    ("vllm:time_in_queue_requests", _H, Unit.SECONDS, (), _GONE, "V0's queueing time"),
    ("vllm:tokens_total", _C, Unit.TOKENS, (), _GONE, "V0's prompt and output tokens together"),
    ("vllm:avg_prompt_throughput_toks_per_s", _G, Unit.TOKENS_PER_S, (), _GONE,
     "V0's own rate of prompt tokens"),
    ("vllm:avg_generation_throughput_toks_per_s", _G, Unit.TOKENS_PER_S, (), _GONE,
     "V0's own rate of output tokens"),
    ("vllm:spec_decode_draft_acceptance_rate", _G, Unit.RATIO, (), _GONE,
     "V0's share of drafted tokens that were accepted"),
    ("vllm:spec_decode_efficiency", _G, Unit.RATIO, (), _GONE,
     "V0's share of possible tokens that were emitted"),
    ("vllm:spec_decode_num_emitted_tokens_total", _C, Unit.TOKENS, (), _GONE,
     "tokens emitted by V0's speculative decoding"),
    ("vllm:request_params_best_of", _H, Unit.REQUESTS, (), _GONE, "V0's best_of of each request"),
    ("vllm:model_forward_time_milliseconds", _H, Unit.MILLISECONDS, (), _GONE,
     "V0's time of a forward pass, in milliseconds"),
)
# fmt: on

_OCCUPANCY = MetricSpec(
    name="vllm_router_pd_prefill_occupancy",
    type=_G,
    unit=Unit.REQUESTS,
    labels=("worker", "rank"),
    help="requests that prefill has or waits for, as its router counts them",
    absence="no such event so far, or another version: not known",
    owner=Owner.VLLM_ROUTER,
    field="",
)
"""Only a local tier reads it: a replica with some is not drained."""

_HEALTH = MetricSpec(
    name="vllm_router_worker_health",
    type=_G,
    unit=Unit.INFO,
    labels=("worker",),
    help="1 while the router holds the worker to be well",
    absence="workers that registered with the router are not on its page: not known",
    owner=Owner.VLLM_ROUTER,
    field="",
)
"""Nobody reads it: it stays 1 for up to a minute after a worker's death."""

RECOGNISED: tuple[MetricSpec, ...] = (
    *(
        MetricSpec(
            name=name,
            type=kind,
            unit=unit,
            labels=("engine", "model_name", *labels),
            help=meaning,
            absence=absence,
            owner=Owner.VLLM,
            field="",
        )
        for name, kind, unit, labels, absence, meaning in _ROWS
    ),
    _OCCUPANCY,
    _HEALTH,
)
"""All rows, those that still exist first."""
