"""vLLM's page in our words, for vLLM 0.9 to 0.32, under the names of each version.

Which number means what was read in vllm-project/vllm 0.32.0 (Apache-2.0), `vllm/v1/metrics/`
`loggers.py` and `stats.py`; renames in its `docs/usage/metrics.md`. Ranks of one process (label
`engine`) are summed; a series that lacks one of the page's ranks is unknown.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import math

from serving.dialects.page import (
    Labels,
    Page,
    first_present,
    histogram,
    histogram_name,
    label,
    total,
)
from serving.dialects.steps import STEP_SERIES, step_reading
from serving.errors import Unavailable
from serving.sums import LARGEST_READ, known_sum
from serving.types import HistogramReading, Phase, ReplicaReading

KV_USED = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")  # renamed in 0.9, gone by 0.11
CACHE_HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
COUNTERS = {
    "prompt_tokens": "vllm:prompt_tokens_total",
    "output_tokens": "vllm:generation_tokens_total",
    "preemptions": "vllm:num_preemptions_total",
    "kv_transfer_failures": "vllm:nixl_num_failed_transfers_total",
    "kv_expired_requests": "vllm:nixl_num_kv_expired_reqs_total",
}
GAUGES = {
    "running_requests": "vllm:num_requests_running",
    "waiting_requests": "vllm:num_requests_waiting",
}
HISTOGRAMS: dict[str, tuple[str, ...]] = {
    "step_tokens": ("vllm:iteration_tokens_total",),
    "ttft": ("vllm:time_to_first_token_seconds",),
    # renamed in 0.11, the old name was removed in 0.13; both are there in between
    "itl": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "tpot": ("vllm:request_time_per_output_token_seconds",),
    "queue_time": ("vllm:request_queue_time_seconds",),
    "prefill_time": ("vllm:request_prefill_time_seconds",),
    "decode_time": ("vllm:request_decode_time_seconds",),
    "request_prompt_tokens": ("vllm:request_prompt_tokens",),
    "request_output_tokens": ("vllm:request_generation_tokens",),
    "kv_transfer_time": ("vllm:nixl_xfer_time_seconds",),
    "kv_transfer_bytes": ("vllm:nixl_bytes_transferred",),
}
BY_SOURCE = "vllm:prompt_tokens_by_source_total"  # since about 0.16
BY_REASON = "vllm:num_requests_waiting_by_reason"
FINISHED = "vllm:request_success_total"
EXTERNAL_HITS = "vllm:external_prefix_cache_hits_total"
CACHE_CONFIG = "vllm:cache_config_info"
PROCESS_START = "process_start_time_seconds"
PROCESS_CPU = "process_cpu_seconds_total"
NOT_SERVED = frozenset({"error", "abort"})

WANTED: frozenset[str] = frozenset(
    [
        *(KV_USED + CACHE_HITS),
        *COUNTERS.values(),
        *GAUGES.values(),
        *(
            f"{n}_{part}"
            for names in HISTOGRAMS.values()
            for n in names
            for part in ("bucket", "sum", "count")
        ),
        *STEP_SERIES.values(),
        *(BY_SOURCE, BY_REASON, FINISHED, EXTERNAL_HITS, CACHE_CONFIG, PROCESS_START, PROCESS_CPU),
    ]
)
"""Every sample name that this dialect asks the page for."""


def replica_reading(page: Page, *, replica: str, at_s: float, phase: Phase) -> ReplicaReading:
    """What one replica's page says. Raises `Unavailable` if it carries no vLLM series at all.

    `phase` only decides whether computed prompt tokens may be taken as prompt less cache hits on
    an engine before 0.16: on a prefill replica they may; elsewhere retries, preemptions and
    requests that wait for remote KV were counted as hits too (vllm#25787, #48860), so they are
    unknown there.
    """
    if not any(name.startswith("vllm:") for name in page.samples):
        raise Unavailable(f"{replica}: the page carries no series of vLLM")
    page = _whole_ranks(page)
    number = {field: total(page, name) for field, name in (COUNTERS | GAUGES).items()}
    spread = {field: _histogram(page, names) for field, names in HISTOGRAMS.items()}
    prompt = number["prompt_tokens"]
    computed, cached, transferred = _prompt_by_source(page, prompt=prompt, phase=phase)
    return ReplicaReading(
        replica=replica,
        at_s=at_s,
        process_start_time_s=total(page, PROCESS_START),
        process_cpu_s=total(page, PROCESS_CPU),
        deferred_requests=total(page, BY_REASON, keep=lambda ls: label(ls, "reason") == "deferred"),
        kv_used_ratio=_kv_used_ratio(page),
        kv_capacity_tokens=_kv_capacity_tokens(page),
        computed_prompt_tokens=computed,
        cached_prompt_tokens=cached,
        transferred_prompt_tokens=transferred,
        finished_requests=total(
            page, FINISHED, keep=lambda ls: label(ls, "finished_reason") not in NOT_SERVED
        ),
        failed_requests=total(
            page, FINISHED, keep=lambda ls: label(ls, "finished_reason") == "error"
        ),
        prompt_tokens=prompt,
        running_requests=number["running_requests"],
        waiting_requests=number["waiting_requests"],
        output_tokens=number["output_tokens"],
        preemptions=number["preemptions"],
        kv_transfer_failures=number["kv_transfer_failures"],
        kv_expired_requests=number["kv_expired_requests"],
        step_tokens=spread["step_tokens"],
        ttft=spread["ttft"],
        itl=spread["itl"],
        tpot=spread["tpot"],
        queue_time=spread["queue_time"],
        prefill_time=spread["prefill_time"],
        decode_time=spread["decode_time"],
        request_prompt_tokens=spread["request_prompt_tokens"],
        request_output_tokens=spread["request_output_tokens"],
        kv_transfer_time=spread["kv_transfer_time"],
        kv_transfer_bytes=spread["kv_transfer_bytes"],
        steps=step_reading(page),
    )


def _rank(labels: Labels) -> tuple[str | None, str | None]:
    return label(labels, "engine"), label(labels, "model_name")


def _whole_ranks(page: Page) -> Page:
    """The page without the series that lack one of its ranks: their sum would be too small."""
    plain = [page.samples.get(name, {}) for name in (COUNTERS | GAUGES).values()]
    if all(len(series) < 2 for series in plain):
        return page
    ranks = {_rank(labels) for series in plain for labels in series}
    partial = {
        name
        for name, series in page.samples.items()
        if name.startswith("vllm:")
        and name != CACHE_CONFIG  # has no model_name
        and {_rank(labels) for labels in series} != ranks
    }
    if not partial:
        return page
    return Page(
        samples={n: s for n, s in page.samples.items() if n not in partial},
        broken=page.broken | partial,
        problems=page.problems,
    )


def _histogram(page: Page, names: tuple[str, ...]) -> HistogramReading | None:
    name = names[0] if len(names) == 1 else histogram_name(page, names)
    return histogram(page, name) if name is not None else None


def _prompt_by_source(
    page: Page, *, prompt: float | None, phase: Phase
) -> tuple[float | None, float | None, float | None]:
    """Prompt tokens computed here, found in the local cache, and received from elsewhere."""
    if BY_SOURCE in page.samples or BY_SOURCE in page.broken:
        return (
            _from(page, "local_compute"),
            _from(page, "local_cache_hit"),
            _from(page, "external_kv_transfer"),
        )
    hits_name = first_present(page, CACHE_HITS)
    cached = total(page, hits_name) if hits_name is not None else None
    transferred = total(page, EXTERNAL_HITS)
    if phase is not Phase.PREFILL or prompt is None or cached is None:
        return None, cached, transferred
    computed = prompt - cached - (transferred or 0.0)
    return (computed if computed >= 0.0 else None), cached, transferred


def _from(page: Page, source: str) -> float | None:
    return total(page, BY_SOURCE, keep=lambda labels: label(labels, "source") == source)


def _kv_used_ratio(page: Page) -> float | None:
    """The mean over ranks, which have caches of one size; above 1 is not a ratio, so unknown."""
    name = first_present(page, KV_USED)
    used = total(page, name) if name is not None else None
    if name is None or used is None:
        return None
    ratio = used / len(page.samples[name])
    return ratio if ratio <= 1.0 else None


def _kv_capacity_tokens(page: Page) -> float | None:
    """The sum over ranks of what the cache can hold, from the labels of the info series."""
    capacities = [_rank_capacity_tokens(ls) for ls in page.samples.get(CACHE_CONFIG, ())]
    known = [c for c in capacities if c is not None]
    return known_sum(known) if known and len(known) == len(capacities) else None


def _rank_capacity_tokens(labels: Labels) -> float | None:
    """`kv_cache_size_tokens` where the version has it, else blocks times block size."""
    size = _positive(label(labels, "kv_cache_size_tokens"))
    if size is not None:
        return size
    blocks = _positive(label(labels, "num_gpu_blocks"))
    block_size = _positive(label(labels, "block_size"))
    if blocks is None or block_size is None or blocks * block_size > LARGEST_READ:
        return None
    return blocks * block_size


def _positive(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:  # these labels say "None" when the engine does not know
        return None
    return value if 0.0 < value <= LARGEST_READ else None
