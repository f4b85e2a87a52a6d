"""OTLP's protobuf form of spans, read and written: the one file that knows its classes.

Needs the extra `otlp`. What cannot be read is one `ValueError`. Attributes that are lists or
mappings are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.traces.otlp_json import MAX_ATTRIBUTES
from collector.traces.spans import RawSpan, Scalar


def decode_protobuf(body: bytes, *, max_spans: int) -> list[RawSpan]:
    """The spans of an ExportTraceServiceRequest. Raises ValueError."""
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise ValueError("not an OTLP trace request") from error
    found: list[RawSpan] = []
    for group in request.resource_spans:
        resource = _read(group.resource.attributes)
        for scope in group.scope_spans:
            for span in scope.spans:
                if len(found) >= max_spans:
                    raise ValueError(f"more than {max_spans} spans")
                if len(span.trace_id) != 16 or len(span.span_id) != 8:
                    raise ValueError("a trace or span id of another length")
                found.append(
                    RawSpan(
                        trace_id=span.trace_id.hex(),
                        span_id=span.span_id.hex(),
                        parent_span_id=span.parent_span_id.hex(),
                        name=span.name,
                        start_ns=span.start_time_unix_nano,
                        end_ns=span.end_time_unix_nano,
                        attributes=_read(span.attributes),
                        resource=resource,
                    )
                )
    return found


def encode_protobuf(spans: Iterable[RawSpan]) -> bytes:
    """The same form, to be sent on."""
    request = ExportTraceServiceRequest()
    groups: dict[tuple[tuple[str, Scalar], ...], list[RawSpan]] = {}
    for span in spans:
        groups.setdefault(tuple(sorted(span.resource.items())), []).append(span)
    for resource, group in groups.items():
        written = request.resource_spans.add()
        written.resource.attributes.extend(_written(dict(resource)))
        scope = written.scope_spans.add()
        scope.scope.name = "phasewise"
        scope.spans.extend(_span(one) for one in group)
    return bytes(request.SerializeToString())


def _span(span: RawSpan) -> Span:
    inner = "phasewise.part" in span.attributes
    return Span(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_span_id),
        name=span.name,
        kind=Span.SPAN_KIND_INTERNAL if inner else Span.SPAN_KIND_SERVER,
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        attributes=_written(span.attributes),
    )


def _read(attributes: Iterable[KeyValue]) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for one in attributes:
        kind = one.value.WhichOneof("value")
        if kind in ("string_value", "bool_value", "int_value", "double_value"):
            found[one.key] = getattr(one.value, kind)
        if len(found) >= MAX_ATTRIBUTES:
            break
    return found


def _written(attributes: Mapping[str, Scalar]) -> list[KeyValue]:
    return [KeyValue(key=name, value=_value(value)) for name, value in attributes.items()]


def _value(value: Scalar) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
    return AnyValue(string_value=value)
