"""The receivers take what engines send, refuse what is hostile, and go on."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from collector.traces.export import BATCH_SPANS, LinesFile, OtlpSender
from collector.traces.join import Joiner
from collector.traces.otlp_json import decode_json, encode_json
from collector.traces.own_spans import own_spans
from collector.traces.receiver import HttpReceiver
from collector.traces.spans import RawSpan, engine_span
from collector.traces.wire import decode_protobuf, encode_protobuf
from serving.errors import Misconfigured, Unavailable
from tests.traces.given_spans import halves, raw

CAPTURED = Path(__file__).parents[1] / "fixtures" / "vllm-0.32" / "traces"
PROTOBUF, JSON = "application/x-protobuf", "application/json"
MAX_BYTES = 100_000
GOOD = (CAPTURED / "prefill.bin").read_bytes()


class Taken(list[RawSpan]):
    """A sink that keeps everything."""

    def __call__(self, spans: object) -> None:
        self.extend(spans)  # type: ignore[arg-type]


@pytest.fixture
def taken() -> Taken:
    return Taken()


@pytest.fixture
async def receiver(taken: Taken) -> AsyncIterator[HttpReceiver]:
    found = HttpReceiver(taken, max_body_bytes=MAX_BYTES, max_spans=5, body_within_s=0.2)
    await found.start("127.0.0.1", 0)
    yield found
    await found.stop()


async def _post(receiver: HttpReceiver, body: object, **headers: str) -> int:
    url = f"http://127.0.0.1:{receiver.port}/v1/traces"
    given = {"Content-Type": PROTOBUF, **{k.replace("_", "-"): v for k, v in headers.items()}}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body, headers=given) as answer,
    ):
        await answer.read()
        return answer.status


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
async def test_what_an_engine_sends_is_taken(
    receiver: HttpReceiver, taken: Taken, kind: str, packed: bool
) -> None:
    spans = decode_protobuf(GOOD, max_spans=100)
    body = GOOD if kind == PROTOBUF else encode_json(spans).encode()
    headers = {"Content_Encoding": "gzip"} if packed else {}
    status = await _post(
        receiver, gzip.compress(body) if packed else body, Content_Type=kind, **headers
    )

    assert status == 200
    assert taken == spans


MANY = [raw(span_id=f"{n:016x}") for n in range(6)]
HOSTILE = [
    pytest.param(b"x" * (MAX_BYTES + 1), {}, 413, id="too-large"),
    pytest.param(gzip.compress(b"\0" * 50_000_000), {"Content_Encoding": "gzip"}, 413, id="bomb"),
    pytest.param(gzip.compress(GOOD)[:-9], {"Content_Encoding": "gzip"}, 400, id="cut-off"),
    pytest.param(GOOD, {"Content_Encoding": "gzip"}, 400, id="not-gzip"),
    pytest.param(GOOD, {"Content_Encoding": "br"}, 415, id="unknown-encoding"),
    pytest.param(GOOD, {"Content_Type": "text/plain"}, 415, id="unknown-form"),
    pytest.param(b"\xff" * 100, {}, 400, id="garbage"),
    pytest.param(b"[" * 90_000, {"Content_Type": JSON}, 400, id="too-deep"),
    pytest.param(b'{"resourceSpans": 1}', {"Content_Type": JSON}, 400, id="wrong-form"),
    pytest.param(b"\xff\xfe{}", {"Content_Type": JSON}, 400, id="not-text"),
    pytest.param(encode_protobuf(MANY), {}, 400, id="too-many"),
    pytest.param(encode_json(MANY).encode(), {"Content_Type": JSON}, 400, id="too-many-json"),
]


@pytest.mark.parametrize(("body", "headers", "status"), HOSTILE)
async def test_what_is_hostile_is_refused_and_the_next_is_taken(
    receiver: HttpReceiver, taken: Taken, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert await _post(receiver, body, **headers) == status
    assert taken == []
    assert receiver.counts == {f"refused with {status}": 1}
    assert await _post(receiver, GOOD) == 200
    assert len(taken) == 3


async def test_a_body_that_never_ends_is_given_up(receiver: HttpReceiver) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"a"
        await asyncio.Event().wait()

    assert await _post(receiver, endless()) == 408


async def test_a_port_that_is_taken_is_one_sentence(receiver: HttpReceiver) -> None:
    with pytest.raises(Unavailable, match="cannot listen on 127"):
        await HttpReceiver(Taken()).start("127.0.0.1", receiver.port)


async def test_grpc_takes_the_same_and_refuses_garbage(taken: Taken) -> None:
    import grpc

    from collector.traces.grpc_receiver import GrpcReceiver

    receiver = GrpcReceiver(taken, max_body_bytes=MAX_BYTES)
    await receiver.start("127.0.0.1", 0)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{receiver.port}") as channel:
            export = channel.unary_unary(
                "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
            )
            with pytest.raises(grpc.aio.AioRpcError, match="not an OTLP trace request"):
                await export(b"\xff" * 100)
            with pytest.raises(grpc.aio.AioRpcError, match="larger than max"):
                await export(b"x" * (MAX_BYTES + 1))
            assert taken == []
            await export((CAPTURED / "decode.bin").read_bytes())
    finally:
        await receiver.stop()

    assert len(taken) == 5
    assert receiver.counts == {"refused as invalid": 1, "requests": 1}


def _one() -> tuple[RawSpan, ...]:
    joiner = Joiner()
    (trace,) = [one for half in halves() for one in joiner.take(half, 0.0)]
    return own_spans(trace)


async def test_joined_requests_are_sent_on(receiver: HttpReceiver, taken: Taken) -> None:
    sender = OtlpSender(f"http://127.0.0.1:{receiver.port}/")
    request = _one()[:5]
    sender.add(request)
    await sender.close()

    assert tuple(taken) == request
    assert sender.counts == {"sent": 5}


async def test_an_endpoint_that_is_down_costs_only_what_it_did_not_take(
    receiver: HttpReceiver,
) -> None:
    port = receiver.port
    await receiver.stop()
    sender = OtlpSender(f"http://127.0.0.1:{port}", max_waiting=10)
    sender.add(_one())
    sender.add(_one())
    await sender.close()

    assert sender.counts == {"dropped": 6, "not taken": 6}
    assert sender.last_problem is not None


HELD = {"stringValue": "kept"}
NOT_HELD: list[dict[str, object]] = [
    {"intValue": "9999999999999999999"},
    {"intValue": str(2**63)},
    {"intValue": -(2**63) - 1},
    {"stringValue": "half \ud800"},
]


@pytest.mark.parametrize("name", ["llm_request", "half \udfff"])
@pytest.mark.parametrize("value", NOT_HELD)
def test_what_protobuf_cannot_hold_is_left_out(name: str, value: dict[str, object]) -> None:
    attributes = [
        {"key": "gen_ai.request.max_tokens", "value": value},
        {"key": "half \ud800", "value": HELD},
        {"key": "least", "value": {"intValue": str(-(2**63))}},
        {"key": "gen_ai.request.id", "value": HELD},
    ]
    span = {
        "traceId": "0a" * 16,
        "spanId": "01" * 8,
        "name": name,
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "9" * 19,
        "attributes": attributes,
    }
    group = {"resource": {"attributes": attributes}, "scopeSpans": [{"spans": [span]}]}
    found = decode_json(json.dumps({"resourceSpans": [group]}).encode(), max_spans=1)

    assert found[0].attributes == {"least": -(2**63), "gen_ai.request.id": "kept"}
    assert decode_protobuf(encode_protobuf(found), max_spans=1) == found


def test_times_that_no_clock_shows_are_of_no_request() -> None:
    assert engine_span(raw()) is not None
    assert engine_span(replace(raw(), end_ns=2**64 - 1)) is None


async def test_a_span_that_cannot_be_sent_costs_only_its_batch(
    receiver: HttpReceiver, taken: Taken
) -> None:
    sender = OtlpSender(f"http://127.0.0.1:{receiver.port}/")
    sender.add([replace(raw(), attributes={"odd": 2**70})] * BATCH_SPANS)
    sender.add([raw()])
    await sender.close()

    assert taken == [raw()]
    assert sender.counts == {"not taken": BATCH_SPANS, "sent": 1}
    assert sender.last_problem is not None


def test_a_disk_that_is_full_costs_only_the_lines() -> None:
    file = LinesFile(Path("/dev/full"))
    file.add(_one())
    file.add(_one())
    file.close()

    assert file.counts == {"not written": 2}
    assert file.last_problem == "No space left on device"


def test_a_file_has_a_line_for_each_request(tmp_path: Path) -> None:
    file = LinesFile(tmp_path / "out.jsonl")
    file.add(_one())
    file.add(_one())
    file.close()
    lines = (tmp_path / "out.jsonl").read_bytes().splitlines()

    assert [tuple(decode_json(line, max_spans=10)) for line in lines] == [_one(), _one()]


def test_places_that_cannot_be_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(Misconfigured, match="cannot be written"):
        LinesFile(tmp_path / "a-file" / "out.jsonl")
    with pytest.raises(Misconfigured, match="is no address"):
        OtlpSender("127.0.0.1:4318")
