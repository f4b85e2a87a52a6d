"""What is being asked of the tier, from what was seen. Pure: no clock, no network, no log.

Two views of the same work are kept for each scrape interval: what arrived (the front end's
arrivals times the mean lengths) and what was served (the engines' own counters). Served work is
the better measure until a pool is saturated; then arrivals show what is really asked. Where there
is no front end, served work stands alone and is a lower bound while requests wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autoscaler.types import Demand
from serving.types import Observation, Phase, PhaseSample

ARRIVED_OVER_SERVED_RATIO = 1.15  # above this, a pool holds work back and arrivals count
_QUEUE_IS_BACKLOG_S = 1.0  # a queue worth this many seconds of arrivals is a backlog, not jitter


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """One scrape interval of the tier: rates per second, means in tokens, `None` if unknown.

    `waiting_prefill_requests` counts requests that queue before prefill.
    """

    at_s: float
    window_s: float
    requests_per_s: float | None = None
    input_tokens_mean: float | None = None
    output_tokens_mean: float | None = None
    finished_per_s: float | None = None
    served_prefill_tokens_per_s: float | None = None
    served_output_tokens_per_s: float | None = None
    waiting_prefill_requests: float | None = None
    kv_bytes_per_s: float | None = None


def _total(values: Iterable[float | None]) -> float | None:
    """The sum, or `None` if there is nothing or one part of it is unknown."""
    total, seen = 0.0, False
    for value in values:
        if value is None:
            return None
        total, seen = total + value, True
    return total if seen else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _of(samples: Sequence[PhaseSample], *phases: Phase) -> list[PhaseSample]:
    return [sample for sample in samples if sample.pool.phase in phases]


def bin_of(observation: Observation) -> Bin:
    """One observation as a bin. Lengths come from the front end where it has them, else engines."""
    prefill = _of(observation.samples, Phase.PREFILL, Phase.BOTH)
    decode = _of(observation.samples, Phase.DECODE, Phase.BOTH)
    both_views = (*prefill, *decode)
    window_s = both_views[0].window_s if both_views else 0.0
    router = observation.router
    engine_input = _first(*(s.request_prompt_tokens_mean.value for s in prefill))
    engine_output = _first(*(s.request_output_tokens_mean.value for s in decode))
    return Bin(
        at_s=observation.at_s,
        window_s=router.window_s if router is not None else window_s,
        requests_per_s=router.requests_per_s.value if router is not None else None,
        input_tokens_mean=_first(
            router.input_tokens_mean.value if router is not None else None, engine_input
        ),
        output_tokens_mean=_first(
            router.output_tokens_mean.value if router is not None else None, engine_output
        ),
        finished_per_s=_first(
            router.finished_requests_per_s.value if router is not None else None,
            _total(s.finished_requests_per_s.value for s in decode),
        ),
        served_prefill_tokens_per_s=_total(s.computed_prompt_tokens_per_s.value for s in prefill),
        served_output_tokens_per_s=_total(s.output_tokens_per_s.value for s in decode),
        waiting_prefill_requests=_total(s.waiting_requests.value for s in prefill),
        kv_bytes_per_s=_total(s.kv_transfer_bytes_per_s.value for s in decode),
    )


def _mean(bins: Sequence[Bin], field: str) -> float | None:
    known = [value for value in (getattr(b, field) for b in bins) if value is not None]
    return sum(known) / len(known) if known else None


def _length(bins: Sequence[Bin], field: str) -> float | None:
    """Mean length, each bin weighted by the requests that finished in it."""
    weight, total = 0.0, 0.0
    for each in bins:
        value = getattr(each, field)
        if value is not None and each.finished_per_s:
            weight += each.finished_per_s
            total += value * each.finished_per_s
    return total / weight if weight > 0.0 else _mean(bins, field)


def recent(bins: Sequence[Bin], *, now_s: float, window_s: float) -> list[Bin]:
    """The bins that ended within the last `window_s` seconds."""
    found: list[Bin] = []
    for each in reversed(bins):
        if each.at_s <= now_s - window_s + 1e-9:
            break
        found.append(each)
    return found[::-1]


def _offered(served: float | None, arrived: float | None) -> float | None:
    if served is None or arrived is None:
        return _first(served, arrived)
    return arrived if arrived > ARRIVED_OVER_SERVED_RATIO * served else served


def demand_level(bins: Sequence[Bin], *, now_s: float, window_s: float) -> Demand:
    """The demand of the last `window_s` seconds; unknown where fewer than half the bins tell it."""
    seen = recent(bins, now_s=now_s, window_s=window_s)
    if not seen:
        return Demand()

    def known(field: str) -> float | None:
        told = sum(1 for each in seen if getattr(each, field) is not None)
        return _mean(seen, field) if 2 * told >= len(seen) else None

    requests = known("requests_per_s")
    input_tokens, output_tokens = (
        _length(seen, "input_tokens_mean"),
        _length(seen, "output_tokens_mean"),
    )
    arrived_in = None if requests is None or input_tokens is None else requests * input_tokens
    arrived_out = None if requests is None or output_tokens is None else requests * output_tokens
    waiting = seen[-1].waiting_prefill_requests
    served_requests = known("finished_per_s")
    censored = (
        requests is None
        and waiting is not None
        and served_requests is not None
        and waiting > _QUEUE_IS_BACKLOG_S * served_requests
    )
    return Demand(
        requests_per_s=_first(requests, served_requests),
        prefill_tokens_per_s=_offered(known("served_prefill_tokens_per_s"), arrived_in),
        output_tokens_per_s=_offered(known("served_output_tokens_per_s"), arrived_out),
        kv_bytes_per_s=known("kv_bytes_per_s"),
        input_tokens_mean=input_tokens,
        output_tokens_mean=output_tokens,
        censored=censored,
    )
