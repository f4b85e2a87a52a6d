"""One request as its parts: how the time of a prefill span and a decode span is divided.

The parts touch: together they are all of the time from arrival at prefill to decode's first token
(the user's TTFT less the way to and from the router) and on to the last token. What an engine's
front end takes (reading the request, handing it to the engine core) counts to `queue` on prefill
and to `kv_transfer` on decode. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from collector.traces.spans import EngineSpan, operation


class Part(StrEnum):
    """What a request waits for, in the order of its life."""

    QUEUE = "queue"
    PREFILL = "prefill"
    KV_TRANSFER = "kv_transfer"
    FIRST_DECODE_STEP = "first_decode_step"
    DECODE = "decode"


TTFT_PARTS = (Part.QUEUE, Part.PREFILL, Part.KV_TRANSFER, Part.FIRST_DECODE_STEP)


class Outcome(StrEnum):
    """Which spans there were."""

    JOINED = "joined"
    AGGREGATED = "aggregated"
    NO_DECODE = "no decode span"
    NO_PREFILL = "no prefill span"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTime:
    """One part, in Unix seconds by prefill's clock; decode's is shifted by `clock_skew_s`."""

    part: Part
    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        """How long it took."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTrace:
    """One request. Parts that are not known are absent; an aggregated engine has no transfer and
    no first decode step of its own, since its prefill gives the first token.

    `handoff_s` is from prefill's first token to the arrival at decode (answer, router, way),
    `decode_wait_s` is decode's own count from queued to scheduled (room, then KV): two pieces of
    `kv_transfer`. `clock_skew_s` is by how much decode's clock is behind, at least: it is told when
    decode says it began before prefill ended. A decode clock that is ahead cannot be seen: it makes
    `handoff_s` longer.
    """

    outcome: Outcome
    joined_by: str | None
    prefill: EngineSpan | None
    decode: EngineSpan | None
    parts: tuple[PartTime, ...]
    handoff_s: float | None = None
    decode_wait_s: float | None = None
    clock_skew_s: float = 0.0

    @property
    def first(self) -> EngineSpan:
        """The span that begins it."""
        found = self.prefill or self.decode
        assert found is not None
        return found

    @property
    def last(self) -> EngineSpan:
        """The span that ends it."""
        return self.decode or self.first

    @property
    def end_s(self) -> float:
        """When its last token left, by prefill's clock."""
        return self.last.end_s + (self.clock_skew_s if self.decode is not None else 0.0)

    @property
    def ttft_s(self) -> float | None:
        """From arrival at prefill to decode's first token; `None` while a half is missing."""
        if self.outcome not in (Outcome.JOINED, Outcome.AGGREGATED):
            return None
        if self.last.first_token_s is None:
            return None
        return self.last.first_token_s + self.clock_skew_s - self.first.arrival_s

    @property
    def request_id(self) -> str | None:
        """The id, as the engine that answered the user calls it."""
        return self.last.request_id or self.first.request_id

    @property
    def operation(self) -> str | None:
        """`gen_ai.operation.name`, if the id tells."""
        return operation(self.request_id)

    @property
    def model(self) -> str | None:
        """The model, if a resource names it."""
        return self.last.model or self.first.model

    def pool_of(self, part: Part) -> str | None:
        """The pool that a part is charged to: waiting for KV to decode, which waits."""
        if part in (Part.QUEUE, Part.PREFILL) or self.decode is None:
            return self.first.pool
        return self.decode.pool

    def seconds(self, part: Part) -> float | None:
        """A part's duration, if it is known."""
        return next((one.duration_s for one in self.parts if one.part is part), None)


def pair(prefill: EngineSpan, decode: EngineSpan, *, joined_by: str) -> RequestTrace:
    """The two spans of a request as one."""
    first_s, arrival_s = prefill.first_token_s, decode.arrival_s
    earliest_s = prefill.end_s if first_s is None else first_s
    skew_s = max(0.0, earliest_s - arrival_s)
    parts = [*_of_prefill(prefill)]
    scheduled_s = decode.scheduled_s
    if first_s is not None and scheduled_s is not None:
        parts.append(_part(Part.KV_TRANSFER, first_s, scheduled_s + skew_s))
    parts += _of_decode(decode, skew_s)
    return RequestTrace(
        outcome=Outcome.JOINED,
        joined_by=joined_by,
        prefill=prefill,
        decode=decode,
        parts=tuple(parts),
        handoff_s=None if first_s is None else arrival_s + skew_s - first_s,
        decode_wait_s=decode.queue_s,
        clock_skew_s=skew_s,
    )


def alone(span: EngineSpan, outcome: Outcome) -> RequestTrace:
    """A request of which one span is known, or has only one."""
    if outcome is Outcome.NO_PREFILL:
        return RequestTrace(
            outcome=outcome,
            joined_by=None,
            prefill=None,
            decode=span,
            parts=tuple(_of_decode(span, 0.0)),
            decode_wait_s=span.queue_s,
        )
    parts = [*_of_prefill(span)]
    if outcome is Outcome.AGGREGATED:
        parts += [one for one in _of_decode(span, 0.0) if one.part is Part.DECODE]
    return RequestTrace(
        outcome=outcome, joined_by=None, prefill=span, decode=None, parts=tuple(parts)
    )


def _of_prefill(span: EngineSpan) -> Iterator[PartTime]:
    first_s, scheduled_s = span.first_token_s, span.scheduled_s
    if first_s is not None and scheduled_s is not None:
        yield _part(Part.QUEUE, span.arrival_s, scheduled_s)
        yield _part(Part.PREFILL, scheduled_s, first_s)


def _of_decode(span: EngineSpan, skew_s: float) -> Iterator[PartTime]:
    first_s, scheduled_s = span.first_token_s, span.scheduled_s
    if first_s is not None and scheduled_s is not None:
        yield _part(Part.FIRST_DECODE_STEP, scheduled_s + skew_s, first_s + skew_s)
    if first_s is not None:
        yield _part(Part.DECODE, first_s + skew_s, span.end_s + skew_s)


def _part(part: Part, start_s: float, end_s: float) -> PartTime:
    return PartTime(part=part, start_s=start_s, end_s=max(start_s, end_s))
