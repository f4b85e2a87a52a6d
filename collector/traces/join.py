"""Finds the two spans of a request, in whatever order they come, within bounded memory.

By request id: vllm-router gives both legs the same. Where ids differ, by the caller's span (trace
id and parent): only if exactly one prefill and one decode are under it, and only after
`settle_s`, since a caller may have many requests under one span. A half without the other is told
as such after `wait_s`; a prefill whose client left never has a decode span. `aggregated` says what
to believe of a single span whose role nobody tells. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from collector.traces.parts import Outcome, RequestTrace, alone, pair
from collector.traces.spans import EngineSpan, pair_addresses
from serving.types import Phase

WAIT_S = 300.0
"""A decode span comes when the answer ends: shorter than the longest answer tells too soon."""
SETTLE_S = 15.0
"""Exporters send every 5 s: three times that."""
MAX_WAITING = 20_000
BY_REQUEST, BY_TRACE = "request id", "trace id"
DUPLICATE, CROWDED_OUT, SKEWED, EXTRA = "duplicate", "crowded out", "clock skew", "extra span"


@dataclass(slots=True)
class _Half:
    span: EngineSpan
    since_s: float


class Joiner:
    """Takes spans, gives requests. `counts` says how many ended how, and what was odd."""

    def __init__(
        self,
        *,
        wait_s: float = WAIT_S,
        settle_s: float = SETTLE_S,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._wait_s, self._settle_s, self._max = wait_s, settle_s, max(1, max_waiting)
        self._waiting: OrderedDict[tuple[str, str], _Half] = OrderedDict()
        self._by_request: dict[str, tuple[str, str]] = {}
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()
        self.counts: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """How many halves wait for the other."""
        return len(self._waiting)

    def take(self, span: EngineSpan, now_s: float) -> tuple[RequestTrace, ...]:
        """One more span; what it completes, and what it crowds out."""
        key = (span.trace_id, span.span_id)
        if key in self._seen:
            self.counts[DUPLICATE] += 1
            return ()
        _remember(self._seen, key, 2 * self._max)
        if span.request_id is not None and span.request_id in self._ended:
            self.counts[EXTRA] += 1  # a repeated leg, or one more choice of the same request
            return ()
        if span.phase is Phase.BOTH:
            return (self._end(alone(span, Outcome.AGGREGATED)),)
        other = self._by_request.get(span.request_id or "")
        if other is not None:
            half = self._waiting[other].span
            self._drop(other)
            if not _same_leg(half, span):
                prefill, decode = in_order(half, span)
                return (self._end(pair(prefill, decode, joined_by=BY_REQUEST)),)
            self.counts[EXTRA] += 1  # the leg was repeated: the later one counts
        self._waiting[key] = _Half(span, now_s)
        if span.request_id is not None:
            self._by_request[span.request_id] = key
        if len(self._waiting) > self._max:
            self.counts[CROWDED_OUT] += 1
            oldest = next(iter(self._waiting))
            return (self._give_up(oldest),)
        return ()

    def due(self, now_s: float) -> tuple[RequestTrace, ...]:
        """Whose time is over: joined by the trace where that is sure, else told as incomplete."""
        ready = [one for one, h in self._waiting.items() if now_s - h.since_s >= self._settle_s]
        found = list(self._by_trace(ready))
        late = [one for one, h in self._waiting.items() if now_s - h.since_s >= self._wait_s]
        return (*found, *(self._give_up(one) for one in late))

    def rest(self) -> tuple[RequestTrace, ...]:
        """All that still wait, at the end."""
        found = list(self._by_trace(list(self._waiting)))
        return (*found, *(self._give_up(one) for one in list(self._waiting)))

    def _by_trace(self, ready: Iterable[tuple[str, str]]) -> Iterable[RequestTrace]:
        under: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for key, half in self._waiting.items():
            if half.span.own_parent is not None:
                under.setdefault((half.span.trace_id, half.span.own_parent), []).append(key)
        settled = set(ready)
        for keys in under.values():
            if len(keys) != 2 or not settled.issuperset(keys):
                continue
            one, other = (self._waiting[key].span for key in keys)
            if pair_addresses(one.request_id) or pair_addresses(other.request_id):
                continue  # the router names requests: these are two
            if _is_prefill(one) is _is_prefill(other):
                continue
            for key in keys:
                self._drop(key)
            prefill, decode = (one, other) if _is_prefill(one) else (other, one)
            yield self._end(pair(prefill, decode, joined_by=BY_TRACE))

    def _give_up(self, key: tuple[str, str]) -> RequestTrace:
        span = self._waiting[key].span
        self._drop(key)
        if span.phase is None and pair_addresses(span.request_id) is None:
            outcome = Outcome.AGGREGATED
        else:
            outcome = Outcome.NO_DECODE if _is_prefill(span) else Outcome.NO_PREFILL
        return self._end(alone(span, outcome))

    def _drop(self, key: tuple[str, str]) -> None:
        half = self._waiting.pop(key)
        if half.span.request_id is not None:
            self._by_request.pop(half.span.request_id, None)

    def _end(self, trace: RequestTrace) -> RequestTrace:
        self.counts[trace.outcome.value] += 1
        if trace.joined_by is not None:
            self.counts[f"by {trace.joined_by}"] += 1
        if trace.clock_skew_s > 0.0:
            self.counts[SKEWED] += 1
        if trace.request_id is not None:
            _remember(self._ended, trace.request_id, 2 * self._max)
        return trace


def in_order(one: EngineSpan, other: EngineSpan) -> tuple[EngineSpan, EngineSpan]:
    """Prefill's and decode's of two spans: by who was asked for one token, else by what engines
    say of themselves (which is wrong once a replica changed its role), else by who began first."""
    if one.looks_like_prefill is not other.looks_like_prefill:
        return (one, other) if one.looks_like_prefill else (other, one)
    if one.phase is not other.phase:
        for mine, its in ((one, other), (other, one)):
            if mine.phase is Phase.PREFILL or its.phase is Phase.DECODE:
                return mine, its
    return (one, other) if one.arrival_s <= other.arrival_s else (other, one)


def _same_leg(one: EngineSpan, other: EngineSpan) -> bool:
    """Both decode, or both say that they are prefill: a router tried twice."""
    if one.looks_like_prefill and other.looks_like_prefill:
        return one.phase is not None and one.phase is other.phase
    return not (one.looks_like_prefill or other.looks_like_prefill)


def _is_prefill(span: EngineSpan) -> bool:
    return span.looks_like_prefill and span.phase is not Phase.DECODE


def _remember(known: OrderedDict[Any, None], key: object, most: int) -> None:
    known[key] = None
    if len(known) > most:
        known.popitem(last=False)
