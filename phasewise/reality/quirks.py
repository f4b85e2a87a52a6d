"""What a pair's pages are known to do that nobody would expect: one check each, for both runs.

A check answers True (it is so), False (it is not), or None (this run cannot tell). The quirks were
read in vllm-project/vllm 0.32.0 (Apache-2.0), `vllm/v1/metrics/stats.py` and
`vllm/v1/core/sched/scheduler.py`, and seen on a running pair. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from phasewise.reality.run import Run
from serving.dialects.page import label

PREFILL, DECODE, ROUTER = "prefill", "decode", "router"

Answer = bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirk:
    """One thing in words, and how to see it."""

    words: str
    check: Callable[[Run], Answer]


def _count(run: Run, target: str, name: str) -> float | None:
    grown = run.grown(target, name)
    return None if grown is None else grown.count


def _mean(run: Run, target: str, name: str) -> float | None:
    grown = run.grown(target, name)
    return grown.sum / grown.count if grown is not None and grown.count else None


def _empty(target: str, name: str) -> Callable[[Run], Answer]:
    def check(run: Run) -> Answer:
        count = _count(run, target, name)
        return None if count is None else count == 0

    return check


def _filled(target: str, name: str) -> Callable[[Run], Answer]:
    def check(run: Run) -> Answer:
        count = _count(run, target, name)
        return None if count is None else count > 0

    return check


def _all_from(target: str, source: str) -> Callable[[Run], Answer]:
    """Every prompt token of a replica came from one source."""

    def check(run: Run) -> Answer:
        name = "vllm:prompt_tokens_by_source_total"
        whole, part = run.growth(target, name), run.growth(target, name, source=source)
        return None if not whole else part == whole

    return check


def _equal(
    left: Callable[[Run], float | None], right: Callable[[Run], float | None]
) -> Callable[[Run], Answer]:
    def check(run: Run) -> Answer:
        one, other = left(run), right(run)
        return None if one is None or other is None else abs(one - other) <= 1e-9 * abs(other)

    return check


def _grows(target: str, sample: str, **labels: str) -> Callable[[Run], float | None]:
    return lambda run: run.growth(target, sample, **labels)


def _counts(target: str, name: str) -> Callable[[Run], float | None]:
    return lambda run: _count(run, target, name)


def _sums(target: str, name: str) -> Callable[[Run], float | None]:
    def total(run: Run) -> float | None:
        grown = run.grown(target, name)
        return None if grown is None else grown.sum

    return total


def _zero_mean(target: str, name: str) -> Callable[[Run], Answer]:
    def check(run: Run) -> Answer:
        mean = _mean(run, target, name)
        return None if mean is None else mean == 0.0

    return check


def _idle_prefill_holds_kv(run: Run) -> Answer:
    """On some page prefill runs nothing, waits for nothing, and its cache is not empty."""
    return any(
        all(page.samples.get(name) for name in _PINNED_NAMES)
        and not any(page.samples["vllm:num_requests_running"].values())
        and not any(page.samples["vllm:num_requests_waiting"].values())
        and any(value > 0.0 for value in page.samples["vllm:kv_cache_usage_perc"].values())
        for page in (read.page for read in run.pages[PREFILL])
    )


_PINNED_NAMES = (
    *("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"),
)


def _queue_holds_transfer(run: Run) -> Answer:
    queue = _mean(run, DECODE, "vllm:request_queue_time_seconds")
    transfer = _mean(run, DECODE, "vllm:nixl_xfer_time_seconds")
    return None if queue is None or transfer is None else queue > transfer


def _has_no_label(target: str, sample: str, name: str) -> Callable[[Run], Answer]:
    def check(run: Run) -> Answer:
        sets = run.label_sets(target, sample)
        return all(label(labels, name) is None for labels in sets) if sets else None

    return check


def _created(run: Run) -> Answer:
    """Counters and histograms have a `_created` series beside them, gauges have not."""
    names = run.last(PREFILL).samples
    with_it = (
        "vllm:prompt_tokens_total".removesuffix("_total"),
        "vllm:time_to_first_token_seconds",
    )
    return all(f"{name}_created" in names for name in with_it) and (
        f"{_PINNED_NAMES[0]}_created" not in names
    )


def _absent_unless_counted(run: Run) -> Answer:
    """The router has no series of an error before the first one."""
    names = ("vllm_router_pd_errors_total", "vllm_router_pd_stream_errors_total")
    return not any(run.label_sets(ROUTER, name) for name in names)


QUIRKS: tuple[Quirk, ...] = (
    Quirk(
        words="prefill has no gap between tokens: its ITL histogram is empty",
        check=_empty(PREFILL, "vllm:inter_token_latency_seconds"),
    ),
    Quirk(
        words="the time per output token of every request on prefill is 0",
        check=_zero_mean(PREFILL, "vllm:request_time_per_output_token_seconds"),
    ),
    Quirk(
        words="the decode time of every request on prefill is 0",
        check=_zero_mean(PREFILL, "vllm:request_decode_time_seconds"),
    ),
    Quirk(
        words="every request on prefill generates one token, which nobody gets",
        check=_equal(
            _grows(PREFILL, "vllm:generation_tokens_total"),
            _counts(PREFILL, "vllm:request_prompt_tokens"),
        ),
    ),
    Quirk(
        words="requests on prefill end by their length",
        check=_equal(
            _grows(PREFILL, "vllm:request_success_total", finished_reason="length"),
            _grows(PREFILL, "vllm:request_success_total"),
        ),
    ),
    Quirk(
        words="prefill's transfer histograms are empty: decode pulls",
        check=_empty(PREFILL, "vllm:nixl_xfer_time_seconds"),
    ),
    Quirk(
        words="decode's transfer histograms are filled",
        check=_filled(DECODE, "vllm:nixl_xfer_time_seconds"),
    ),
    Quirk(
        words="one transfer for each request that decode finished",
        check=_equal(
            _counts(DECODE, "vllm:nixl_xfer_time_seconds"),
            _counts(DECODE, "vllm:request_prompt_tokens"),
        ),
    ),
    Quirk(
        words="prompt tokens count in full on prefill and again on decode",
        check=_equal(
            _grows(DECODE, "vllm:prompt_tokens_total"), _grows(PREFILL, "vllm:prompt_tokens_total")
        ),
    ),
    Quirk(
        words="all of prefill's prompt tokens are computed there",
        check=_all_from(PREFILL, "local_compute"),
    ),
    Quirk(
        words="all of decode's prompt tokens come by transfer, though it computes the last again",
        check=_all_from(DECODE, "external_kv_transfer"),
    ),
    Quirk(
        words="decode's external cache hits are its transfers, no cache win",
        check=_equal(
            _grows(DECODE, "vllm:external_prefix_cache_hits_total"),
            _grows(DECODE, "vllm:prompt_tokens_total"),
        ),
    ),
    Quirk(
        words="request_prefill_kv_computed_tokens on decode holds the whole prompts, in spite of "
        "its help",
        check=_equal(
            _sums(DECODE, "vllm:request_prefill_kv_computed_tokens"),
            _sums(DECODE, "vllm:request_prompt_tokens"),
        ),
    ),
    Quirk(
        words="KV stays pinned on a prefill replica that neither runs nor waits",
        check=_idle_prefill_holds_kv,
    ),
    Quirk(
        words="the queue time on decode holds the transfer",
        check=_queue_holds_transfer,
    ),
    Quirk(
        words="iteration_tokens_total is a histogram, in spite of its name",
        check=_filled(DECODE, "vllm:iteration_tokens_total"),
    ),
    Quirk(
        words="counters and histograms have a _created series, gauges have none",
        check=_created,
    ),
    Quirk(
        words="no series says which role the replica has",
        check=_has_no_label(PREFILL, "vllm:num_requests_running", "role"),
    ),
    Quirk(
        words="cache_config_info has no model_name",
        check=_has_no_label(PREFILL, "vllm:cache_config_info", "model_name"),
    ),
    Quirk(
        words="the router counts every request at prefill and at decode as processed",
        check=_equal(
            _grows(ROUTER, "vllm_router_processed_requests_total"),
            lambda run: 2.0 * (run.growth(ROUTER, "vllm_router_pd_requests_total") or 0.0),
        ),
    ),
    Quirk(
        words="the router has no series of an error before the first one",
        check=_absent_unless_counted,
    ),
)
"""All of them, prefill first."""
