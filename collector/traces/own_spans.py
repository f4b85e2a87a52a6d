"""A joined request as spans again, with the GenAI conventions' names.

One span for the request (under the caller's span, if there was one) and one for each part that is
known. Names that the conventions do not have begin with `phasewise.`. Ids are made of the
request's own, so that the same request gives the same ids. Conventions as of
opentelemetry-semantic-conventions 0.66b2. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from collector.traces.parts import Part, PartTime, RequestTrace
from collector.traces.spans import EngineSpan, RawSpan, Scalar, pair_addresses
from serving.types import Phase

_PHASES = {
    Part.QUEUE: Phase.PREFILL,
    Part.PREFILL: Phase.PREFILL,
    Part.KV_TRANSFER: Phase.DECODE,
    Part.FIRST_DECODE_STEP: Phase.DECODE,
    Part.DECODE: Phase.DECODE,
}


def own_spans(trace: RequestTrace, *, default_model: str | None = None) -> tuple[RawSpan, ...]:
    """The request's span first, then its parts."""
    model = trace.model or default_model
    first = trace.first
    root_id = _id(first, "request")
    operation = trace.operation
    end_s = max([trace.end_s, *(part.end_s for part in trace.parts)])
    root = RawSpan(
        trace_id=first.trace_id,
        span_id=root_id,
        parent_span_id=first.own_parent or "",
        name=" ".join(word for word in (operation or "request", model) if word),
        start_ns=_ns(first.arrival_s),
        end_ns=_ns(end_s),
        attributes=dict(_root_attributes(trace, operation, model)),
        resource={"service.name": "phasewise"},
    )
    return (root, *(_child(trace, part, root_id) for part in trace.parts))


def _root_attributes(
    trace: RequestTrace, operation: str | None, model: str | None
) -> Iterator[tuple[str, Scalar]]:
    first, last = trace.first, trace.last
    addresses = pair_addresses(trace.request_id)
    told: dict[str, Scalar | None] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": model,
        "gen_ai.request.max_tokens": last.max_tokens if trace.decode or not addresses else None,
        "gen_ai.request.choice.count": last.choices,
        "gen_ai.response.id": trace.request_id,
        "gen_ai.response.time_to_first_chunk": trace.ttft_s,
        "gen_ai.usage.input_tokens": last.input_tokens,
        "gen_ai.usage.output_tokens": last.output_tokens,
        "phasewise.outcome": trace.outcome.value,
        "phasewise.joined_by": trace.joined_by,
        "phasewise.prefill.pool": first.pool if trace.prefill else None,
        "phasewise.prefill.replica": first.replica if trace.prefill else None,
        "phasewise.prefill.address": addresses[0] if addresses else None,
        "phasewise.decode.pool": trace.decode.pool if trace.decode else None,
        "phasewise.decode.replica": trace.decode.replica if trace.decode else None,
        "phasewise.decode.address": addresses[1] if addresses else None,
        "phasewise.clock_skew_s": trace.clock_skew_s or None,
    }
    yield from ((name, value) for name, value in told.items() if value is not None)


def _child(trace: RequestTrace, part: PartTime, root_id: str) -> RawSpan:
    joined = trace.decode is not None
    phase = _PHASES[part.part] if joined or trace.outcome.value != "aggregated" else Phase.BOTH
    of = trace.first if part.part in (Part.QUEUE, Part.PREFILL) else trace.last
    told: dict[str, Scalar | None] = {
        "phasewise.part": part.part.value,
        "phasewise.phase": phase.value,
        "phasewise.pool": of.pool,
        "phasewise.replica": of.replica,
    }
    if part.part is Part.QUEUE:
        told["phasewise.engine_queue_s"] = trace.first.queue_s
    if part.part is Part.KV_TRANSFER:
        told["phasewise.handoff_s"] = trace.handoff_s
        told["phasewise.decode_wait_s"] = trace.decode_wait_s
        told["phasewise.clock_skew_s"] = trace.clock_skew_s or None
    return RawSpan(
        trace_id=trace.first.trace_id,
        span_id=_id(trace.first, part.part.value),
        parent_span_id=root_id,
        name=part.part.value,
        start_ns=_ns(part.start_s),
        end_ns=_ns(part.end_s),
        attributes={name: value for name, value in told.items() if value is not None},
        resource={"service.name": "phasewise"},
    )


def _id(first: EngineSpan, name: str) -> str:
    return sha256(f"{first.trace_id}/{first.span_id}/{name}".encode()).hexdigest()[:16]


def _ns(unix_s: float) -> int:
    return round(unix_s * 1e9)
