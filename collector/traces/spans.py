"""What one engine's span says of one request, in our words. Times are Unix seconds by its clock.

vLLM makes one span `llm_request` when a request finishes (also when it failed inside the engine,
never when the client left). It names neither the engine's role nor the model: `phasewise.phase`,
`phasewise.pool`, `service.instance.id` and `gen_ai.request.model` come from the engine's resource
(`OTEL_RESOURCE_ATTRIBUTES`), or are not known. Unknown is `None`: of a request that was never
scheduled vLLM writes queue and prefill times that cannot be. Pure: no clock, no network, no log.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.types import Phase

REQUEST_SPAN = "llm_request"
TIME_SLACK_S = 0.001
"""An engine's two clocks (wall, monotonic) may differ by so much within one request."""
MAX_TEXT = 512
LATEST_NS = 2**62
"""The year 2116. Later times are none, so that times moved by a clock's skew still fit 64 bits."""
_PD_ID = re.compile(r"___prefill_addr_(.+?)___decode_addr_(.+)_[0-9a-fA-F-]{32,36}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_NAMES = ("unknown_service", "vllm")

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RawSpan:
    """One span as it came by OTLP; ids in hex, "" where absent; only scalar attributes."""

    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    resource: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpan:
    """One request in one engine. `queue_s` is from being queued to being scheduled: on a decode
    engine that is waiting for room and pulling the KV, which the span does not tell apart.

    `ttft_s` and `e2e_s` are from `arrival_s`; `prefill_s` is from being scheduled to the first
    token: on a decode engine that is its first step. `own_parent` is the caller's span, if the
    caller sent a `traceparent`; else the trace id is of this engine's own making.
    """

    trace_id: str
    span_id: str
    own_parent: str | None
    request_id: str | None
    arrival_s: float
    end_s: float
    ttft_s: float | None
    e2e_s: float | None
    queue_s: float | None
    prefill_s: float | None
    input_tokens: int | None
    output_tokens: int | None
    max_tokens: int | None
    choices: int | None
    phase: Phase | None
    pool: str | None
    replica: str | None
    model: str | None

    @property
    def first_token_s(self) -> float | None:
        """When the first token left the engine."""
        return None if self.ttft_s is None else self.arrival_s + self.ttft_s

    @property
    def scheduled_s(self) -> float | None:
        """When the engine began to work on it. What its front end took is before that."""
        if self.first_token_s is None or self.prefill_s is None:
            return None
        return self.first_token_s - self.prefill_s

    @property
    def looks_like_prefill(self) -> bool:
        """Asked for one token and gave no more: what a router asks of prefill, or a user."""
        return self.max_tokens == 1 and (self.output_tokens or 0) <= 1


def engine_span(raw: RawSpan) -> EngineSpan | None:
    """The request that a span is of; `None` if it is of something else (start-up, other programs)
    or its times cannot be."""
    if raw.name != REQUEST_SPAN or not raw.trace_id or not raw.span_id:
        return None
    if not 0 < raw.start_ns <= raw.end_ns <= LATEST_NS:
        return None
    given, resource = raw.attributes, raw.resource
    arrival_s, end_s = raw.start_ns / 1e9, raw.end_ns / 1e9
    longest_s = end_s - arrival_s + TIME_SLACK_S
    ttft_s = _seconds(given.get("gen_ai.latency.time_to_first_token"), longest_s)
    within_s = longest_s if ttft_s is None else ttft_s + TIME_SLACK_S
    queue_s = _seconds(given.get("gen_ai.latency.time_in_queue"), within_s)
    prefill_s = _seconds(given.get("gen_ai.latency.time_in_model_prefill"), within_s)
    # One that was never scheduled spoils both.
    if queue_s is None or prefill_s is None or queue_s + prefill_s > within_s:
        queue_s = prefill_s = None
    return EngineSpan(
        trace_id=raw.trace_id,
        span_id=raw.span_id,
        own_parent=raw.parent_span_id or None,
        request_id=_text(given.get("gen_ai.request.id")),
        arrival_s=arrival_s,
        end_s=end_s,
        ttft_s=ttft_s,
        e2e_s=_seconds(given.get("gen_ai.latency.e2e"), longest_s),
        queue_s=queue_s,
        prefill_s=prefill_s,
        input_tokens=_count(given, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        output_tokens=_count(given, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        max_tokens=_count(given, "gen_ai.request.max_tokens"),
        choices=_count(given, "gen_ai.request.n", "gen_ai.request.choice.count"),
        phase=_phase(resource.get("phasewise.phase")),
        pool=_text(resource.get("phasewise.pool")),
        replica=_replica(resource),
        model=_text(
            given.get("gen_ai.response.model")
            or given.get("gen_ai.request.model")
            or resource.get("gen_ai.request.model")
        ),
    )


def pair_addresses(request_id: str | None) -> tuple[str, str] | None:
    """The prefill and the decode address that vllm-router writes into a request's id."""
    found = _PD_ID.search(request_id or "")
    return (found.group(1), found.group(2)) if found else None


def operation(request_id: str | None) -> str | None:
    """`gen_ai.operation.name` by the prefix that vLLM gives the id."""
    if request_id is None:
        return None
    if request_id.startswith("chatcmpl-"):
        return "chat"
    return "text_completion" if request_id.startswith("cmpl-") else None


def _seconds(value: Scalar | None, longest_s: float) -> float | None:
    if value is None or isinstance(value, bool | str):
        return None
    return float(value) if math.isfinite(value) and 0.0 <= value <= longest_s else None


def _count(given: Mapping[str, Scalar], *names: str) -> int | None:
    for name in names:
        value = given.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _text(value: Scalar | None) -> str | None:
    return value[:MAX_TEXT] if isinstance(value, str) and value else None


def _replica(resource: Mapping[str, Scalar]) -> str | None:
    """Its name; an instance id that the SDK made up and a service of a default name are none."""
    named = _text(resource.get("phasewise.replica"))
    instance = _text(resource.get("service.instance.id"))
    service = _text(resource.get("service.name"))
    if named is None and instance is not None and not _UUID.fullmatch(instance):
        named = instance
    if (
        named is None
        and service is not None
        and not service.startswith(("unknown_service", "vllm"))
    ):
        named = service
    return named


def _phase(value: Scalar | None) -> Phase | None:
    return next((phase for phase in Phase if phase.value == value), None)
