"""Prefill, decode or both: told from what replicas have done, never from their names.

A replica that computes prompts and answers with one token is prefill; one whose prompt tokens
came by KV transfer is decode; one that computes prompts and writes long answers does both.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from serving.dialects.page import Page, label, total
from serving.types import Phase

ENOUGH_REQUESTS = 20.0
_MOSTLY = 0.8
_HALF = 0.5
_TRACE = 0.02
_FINISHED = "vllm:request_success_total"
_LENGTHS = "vllm:request_generation_tokens"
_BY_SOURCE = "vllm:prompt_tokens_by_source_total"
_FETCHES = "vllm:num_requests_kv_fetch_by_stage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What tells the phases apart, as counted since the process started; `None`: not on the page.

    `one_token` are the finished requests with one token; `consumers` the pages that count requests
    by stage of their KV fetch, which only an engine does that was started to take KV.
    """

    finished: float | None = None
    one_token: float | None = None
    output_tokens: float | None = None
    prompt: float | None = None
    computed: float | None = None
    cached: float | None = None
    transferred: float | None = None
    gaps: float | None = None
    transfers: float | None = None
    remote_decode: float | None = None
    consumers: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The phase that the evidence tells, and the evidence in words; `None`: it tells none."""

    phase: Phase | None
    words: tuple[str, ...]


def signals_of(page: Page) -> Signals:
    """The signals on one page."""
    lengths = page.samples.get(f"{_LENGTHS}_bucket", {})
    ones = [count for ls, count in lengths.items() if _is_one(label(ls, "le"))]
    return Signals(
        finished=_first(
            total(page, _FINISHED),
            total(page, f"{_LENGTHS}_count"),
            total(page, "vllm:e2e_request_latency_seconds_count"),
        ),
        one_token=sum(ones) if ones else None,
        output_tokens=total(page, "vllm:generation_tokens_total"),
        prompt=total(page, "vllm:prompt_tokens_total"),
        computed=_source(page, "local_compute"),
        cached=_source(page, "local_cache_hit"),
        transferred=_first(
            _source(page, "external_kv_transfer"),
            total(page, "vllm:external_prefix_cache_hits_total"),
        ),
        gaps=_first(
            total(page, "vllm:inter_token_latency_seconds_count"),
            total(page, "vllm:time_per_output_token_seconds_count"),
        ),
        transfers=total(page, "vllm:nixl_xfer_time_seconds_count"),
        remote_decode=total(
            page, _FINISHED, keep=lambda ls: label(ls, "finish_reason") == "remote_decode"
        ),
        consumers=1.0 if page.samples.get(_FETCHES) else None,
    )


def together(parts: Iterable[Signals]) -> Signals:
    """The signals of several replicas, added up; what only some of them know is their sum."""
    parts = tuple(parts)

    def added(name: str) -> float | None:
        known = [v for v in (getattr(part, name) for part in parts) if v is not None]
        return sum(known) if known else None

    return Signals(**{field.name: added(field.name) for field in fields(Signals)})


def role_of(parts: Sequence[Signals]) -> Role:
    """The role of one replica, or of all replicas of a pool."""
    seen = together(parts)
    if seen.finished is None:
        return Role(phase=None, words=("no evidence: finished requests are not counted here",))
    if seen.finished < ENOUGH_REQUESTS:
        words = f"no evidence: {seen.finished:,.0f} finished requests, {ENOUGH_REQUESTS:.0f} needed"
        return Role(phase=None, words=(words,))
    pulled, single = _pulled_ratio(seen), _single_ratio(seen, seen.finished)
    told = list(_told(seen, seen.finished))
    if pulled is not None and pulled >= _HALF:
        if single is not None and single >= _MOSTLY and not seen.transfers:
            return Role(phase=None, words=("not told: the signs contradict each other", *told))
        return Role(phase=Phase.DECODE, words=tuple(told))
    if single is not None and single >= _MOSTLY:
        alone = pulled is None or pulled <= _TRACE
        return Role(phase=Phase.PREFILL if alone else None, words=tuple(reversed(told)))
    if pulled is not None and single is not None:
        return Role(phase=Phase.BOTH, words=tuple(told))
    unknown = "where its KV comes from" if pulled is None else "how long its answers are"
    return Role(phase=None, words=(f"not told: the page does not say {unknown}", *told))


def _told(seen: Signals, finished: float) -> Iterable[str]:
    """The evidence in words: where prompts came from first, how long answers were last."""
    prompt = [v for v in (seen.computed, seen.cached, seen.transferred) if v is not None]
    if seen.computed is not None and sum(prompt) > 0.0:
        moved = (seen.transferred or 0.0) / sum(prompt)
        here = seen.computed / sum(prompt)
        yield (
            f"of {sum(prompt):,.0f} prompt tokens {moved:.0%} came by KV transfer, "
            f"{here:.0%} were computed here"
        )
    if seen.transfers is not None:
        yield f"{seen.transfers:,.0f} KV transfers pulled by NIXL"
    if seen.consumers:
        yield "it counts requests by stage of their KV fetch: started as a KV consumer"
    if seen.gaps is not None:
        yield f"{seen.gaps:,.0f} gaps between tokens in {finished:,.0f} requests"
    if seen.remote_decode:
        yield f"{seen.remote_decode:,.0f} requests were handed on (finish_reason remote_decode)"
    if seen.one_token is not None:
        yield f"{seen.one_token:,.0f} of {finished:,.0f} requests gave one token and no more"


def _pulled_ratio(seen: Signals) -> float | None:
    """The share of prompt tokens whose KV came from another replica."""
    if seen.transferred is None:
        return None
    if seen.computed is not None:
        whole = seen.computed + (seen.cached or 0.0) + seen.transferred
    else:
        whole = seen.prompt or 0.0
    return seen.transferred / whole if whole > 0.0 else None


def _single_ratio(seen: Signals, finished: float) -> float | None:
    """The share of answers that are one token long."""
    if seen.remote_decode:
        return seen.remote_decode / finished
    if seen.one_token is not None:
        return seen.one_token / finished
    return None


def _source(page: Page, source: str) -> float | None:
    return total(page, _BY_SOURCE, keep=lambda labels: label(labels, "source") == source)


def _is_one(bound: str | None) -> bool:
    try:
        return bound is not None and float(bound) == 1.0
    except ValueError:
        return False


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
