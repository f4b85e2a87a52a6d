"""What an engine's span says, and what it cannot mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.traces.otlp_json import decode_json, encode_json
from collector.traces.spans import RawSpan, engine_span, operation, pair_addresses
from collector.traces.wire import decode_protobuf, encode_protobuf
from serving.types import Phase
from tests.traces.given_spans import ID, raw, span

CAPTURED = Path(__file__).parents[1] / "fixtures" / "vllm-0.32" / "traces"


def test_a_captured_prefill_batch_is_read() -> None:
    found = [
        engine_span(one)
        for one in decode_protobuf((CAPTURED / "prefill.bin").read_bytes(), max_spans=100)
    ]

    assert len(found) == 3
    first = found[0]
    assert first is not None
    assert (first.input_tokens, first.output_tokens, first.max_tokens) == (200, 1, 1)
    assert first.own_parent == "000000000000abc1"
    assert first.replica == "prefill-0"
    assert first.looks_like_prefill
    assert first.ttft_s == pytest.approx(0.048, abs=0.001)
    assert first.queue_s == pytest.approx(4.2e-05, abs=1e-06)
    assert pair_addresses(first.request_id) == ("127.0.0.1:26111", "127.0.0.1:26112")


def test_start_up_spans_of_a_captured_engine_are_no_requests() -> None:
    lines = (CAPTURED / "pair.jsonl").read_bytes().splitlines()
    start_up = decode_json(lines[0], max_spans=100)

    assert [one.name for one in start_up] == ["AsyncMPClient init", "Overall Loading"]
    assert [engine_span(one) for one in start_up] == [None, None]


@pytest.mark.parametrize("name", ["prefill.bin", "decode.bin"])
def test_a_captured_batch_is_the_same_in_both_forms_of_otlp(name: str) -> None:
    spans = decode_protobuf((CAPTURED / name).read_bytes(), max_spans=100)

    assert decode_json(encode_json(spans).encode(), max_spans=100) == spans
    assert decode_protobuf(encode_protobuf(spans), max_spans=100) == spans


@pytest.mark.parametrize(
    ("faulty", "known"),
    [
        pytest.param({"queue": -1_000.0, "prefill": 1_000.3}, "ttft", id="never-scheduled"),
        pytest.param({"queue": 0.2, "prefill": 0.2}, "ttft", id="more-than-the-whole"),
        pytest.param({"queue": float("nan")}, "ttft", id="not-a-number"),
        pytest.param({"ttft": 5.0}, "queue", id="first-token-after-the-end"),
    ],
)
def test_times_that_cannot_be_are_unknown(faulty: dict[str, float], known: str) -> None:
    found = span(**faulty)

    assert found.scheduled_s is None
    if known == "ttft":
        assert (found.queue_s, found.prefill_s) == (None, None)
        assert found.ttft_s == pytest.approx(0.3)
    else:
        assert found.ttft_s is None


@pytest.mark.parametrize(
    "change",
    [
        {"name": "HTTP GET"},
        {"start_ns": 0},
        {"end_ns": 5},
        {"trace_id": ""},
    ],
    ids=str,
)
def test_a_span_that_is_no_request_is_none(change: dict[str, object]) -> None:
    given_span = raw()
    fields = {name: getattr(given_span, name) for name in RawSpan.__dataclass_fields__}

    assert engine_span(given_span) is not None
    assert engine_span(RawSpan(**{**fields, **change})) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("resource", "replica"),
    [
        ({"service.instance.id": "decode-1", "service.name": "vllm"}, "decode-1"),
        ({"service.instance.id": "37ca1516-2e3b-4226-b9b0-eca668bf20ab"}, None),
        ({"service.name": "unknown_service"}, None),
        ({"service.name": "prefill-0"}, "prefill-0"),
        ({"phasewise.replica": "a", "service.instance.id": "b"}, "a"),
    ],
)
def test_a_replica_is_called_by_its_own_name(resource: dict[str, str], replica: str | None) -> None:
    assert span(resource=resource).replica == replica


def test_phase_pool_and_model_come_from_the_resource() -> None:
    told = {"phasewise.phase": "decode", "phasewise.pool": "d", "gen_ai.request.model": "m"}
    found = span(resource=told)

    assert (found.phase, found.pool, found.model) == (Phase.DECODE, "d", "m")
    assert span(resource={"phasewise.phase": "nonsense"}).phase is None


def test_the_operation_is_told_by_the_ids_prefix() -> None:
    assert operation(ID) == "text_completion"
    assert operation("chatcmpl-1") == "chat"
    assert operation("resp_1") is None
    assert operation(None) is None


@given(st.binary(max_size=300))
def test_garbage_is_an_error_and_nothing_else(body: bytes) -> None:
    for decode in (decode_json, decode_protobuf):
        try:
            found = decode(body, max_spans=10)
        except ValueError:
            continue
        assert all(engine_span(one) is None for one in found)


JSONS = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["resourceSpans", "scopeSpans", "spans", "attributes", "key", "value"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(JSONS)
def test_any_json_is_spans_or_an_error(document: object) -> None:
    import json

    try:
        decode_json(json.dumps(document).encode(), max_spans=10)
    except ValueError:
        return
    assert isinstance(document, dict)


def test_json_that_is_nested_too_deep_is_an_error() -> None:
    with pytest.raises(ValueError, match="deep"):
        decode_json(b"[" * 200_000, max_spans=10)
