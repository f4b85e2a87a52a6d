"""Spans as engines make them, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from collector.traces.spans import EngineSpan, RawSpan, engine_span

ID = "cmpl-___prefill_addr_10.0.0.1:8000___decode_addr_10.0.0.2:8000_" + "ab" * 16 + "-0"
T0_NS = 1_800_000_000_000_000_000


def raw(
    *,
    request_id: str = ID,
    start_s: float = 0.0,
    ttft: float = 0.3,
    e2e: float = 0.3,
    queue: float = 0.1,
    prefill: float = 0.18,
    span_id: str = "01" * 8,
    trace_id: str = "0a" * 16,
    parent: str = "",
    max_tokens: int = 1,
    output_tokens: int = 1,
    resource: dict[str, Any] | None = None,
    **more: Any,
) -> RawSpan:
    """A prefill's span: 0.02 s in the front end, 0.1 s queue, 0.18 s prefill."""
    start_ns = T0_NS + round(start_s * 1e9)
    return RawSpan(
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=parent,
        name="llm_request",
        start_ns=start_ns,
        end_ns=start_ns + round(e2e * 1e9),
        attributes={
            "gen_ai.latency.time_to_first_token": ttft,
            "gen_ai.latency.e2e": e2e,
            "gen_ai.latency.time_in_queue": queue,
            "gen_ai.latency.time_in_model_prefill": prefill,
            "gen_ai.usage.prompt_tokens": 100,
            "gen_ai.usage.completion_tokens": output_tokens,
            "gen_ai.request.max_tokens": max_tokens,
            "gen_ai.request.n": 1,
            "gen_ai.request.id": request_id,
            **more,
        },
        resource=resource or {},
    )


def span(**more: Any) -> EngineSpan:
    found = engine_span(raw(**more))
    assert found is not None
    return found


def halves(number: int = 0, **more: Any) -> tuple[EngineSpan, EngineSpan]:
    """A prefill and its decode, which arrives 0.05 s after prefill's first token."""
    begins = number * 10.0
    given = {"request_id": ID.replace("-0", f"-{number}"), **more}
    prefill = span(start_s=begins, span_id=f"{2 * number + 1:016x}", **given)
    decode = span(
        start_s=begins + 0.35,
        span_id=f"{2 * number + 2:016x}",
        ttft=0.25,
        e2e=2.25,
        queue=0.2,
        prefill=0.04,
        max_tokens=16,
        output_tokens=16,
        **{**given, "trace_id": more.get("trace_id", f"{number + 9:032x}")},
    )
    return prefill, decode


def later(given: EngineSpan, by_s: float) -> EngineSpan:
    return replace(given, arrival_s=given.arrival_s + by_s, end_s=given.end_s + by_s)
