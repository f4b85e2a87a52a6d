"""OTLP's JSON form of spans, read and written. Ids are hex there, numbers of 64 bits are text.

Whatever is not of that form is one `ValueError`; unknown keys are passed over, as OTLP asks.
Attributes that are lists or mappings are left out, and what OTLP's protobuf form could not hold:
integers of more than 64 bits, text that is not whole Unicode (lone surrogates).
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from collector.traces.spans import RawSpan, Scalar

MAX_ATTRIBUTES = 256
_TRACE_ID = re.compile(r"[0-9a-fA-F]{32}")
_SPAN_ID = re.compile(r"[0-9a-fA-F]{16}")
_NS = re.compile(r"[0-9]{1,19}")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def decode_json(body: bytes, *, max_spans: int) -> list[RawSpan]:
    """The spans of an ExportTraceServiceRequest. Raises ValueError."""
    try:
        return _decoded(json.loads(body), max_spans)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _decoded(document: Any, max_spans: int) -> list[RawSpan]:
    found: list[RawSpan] = []
    for group in _list(_mapping(document), "resourceSpans"):
        resource = _attributes(_mapping(_mapping(group).get("resource") or {}))
        for scope in _list(_mapping(group), "scopeSpans"):
            for span in _list(_mapping(scope), "spans"):
                if len(found) >= max_spans:
                    raise ValueError(f"more than {max_spans} spans")
                found.append(_span(_mapping(span), resource))
    return found


def encode_json(spans: Iterable[RawSpan]) -> str:
    """The same form, in one line."""
    by_resource: dict[tuple[tuple[str, Scalar], ...], list[RawSpan]] = {}
    for span in spans:
        by_resource.setdefault(tuple(sorted(span.resource.items())), []).append(span)
    groups = [
        {
            "resource": {"attributes": _written(dict(resource))},
            "scopeSpans": [
                {"scope": {"name": "phasewise"}, "spans": [_written_span(one) for one in group]}
            ],
        }
        for resource, group in by_resource.items()
    ]
    return json.dumps({"resourceSpans": groups}, separators=(",", ":"))


def _span(given: Mapping[str, Any], resource: Mapping[str, Scalar]) -> RawSpan:
    parent = given.get("parentSpanId") or ""
    return RawSpan(
        trace_id=_matching(given.get("traceId"), _TRACE_ID).lower(),
        span_id=_matching(given.get("spanId"), _SPAN_ID).lower(),
        parent_span_id=_matching(parent, _SPAN_ID).lower() if parent else "",
        name=_text(given.get("name")) or "",
        start_ns=int(_matching(str(given.get("startTimeUnixNano")), _NS)),
        end_ns=int(_matching(str(given.get("endTimeUnixNano")), _NS)),
        attributes=_attributes(given),
        resource=resource,
    )


def _attributes(given: Mapping[str, Any]) -> dict[str, Scalar]:
    return dict(_pairs(_list(given, "attributes")[:MAX_ATTRIBUTES]))


def _pairs(attributes: Iterable[Any]) -> Iterator[tuple[str, Scalar]]:
    for one in attributes:
        pair = _mapping(one)
        key, value = _text(pair.get("key")), _scalar(_mapping(pair.get("value") or {}))
        if value is not None and key is not None:
            yield key, value


def _scalar(value: Mapping[str, Any]) -> Scalar | None:
    match value:
        case {"stringValue": str(text)}:
            return _text(text)
        case {"boolValue": bool(truth)}:
            return truth
        case {"intValue": str() | int() as number}:
            return _integer(str(number))
        case {"doubleValue": float() | int() as number}:
            return float(number) if abs(number) < 1e308 else None
    return None


def _text(value: Any) -> str | None:
    """Text that UTF-8 can hold; JSON's escapes can also write halves of characters."""
    if not isinstance(value, str) or _LONE_SURROGATE.search(value):
        return None
    return value


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _matching(value: Any, form: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise ValueError(f"{str(value)[:40]!r} is no id or time")
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{type(value).__name__} where a mapping should be")
    return value


def _list(given: Mapping[str, Any], key: str) -> list[Any]:
    value = given.get(key) or []
    if not isinstance(value, list):
        raise ValueError(f"{key} is no list")
    return value


def _written_span(span: RawSpan) -> dict[str, Any]:
    kind = 1 if span.parent_span_id and "phasewise.part" in span.attributes else 2
    found = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_span_id,
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _written(span.attributes),
    }
    return {key: value for key, value in found.items() if value != ""}


def _written(attributes: Mapping[str, Scalar]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: Scalar) -> dict[str, Scalar]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
    return {"stringValue": value}
