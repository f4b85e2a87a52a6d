"""`phasewise traces` as a whole: spans in, one trace per request out, a table at the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from io import StringIO
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from rich.console import Console

from collector.traces.join import Joiner
from collector.traces.otlp_json import decode_json
from phasewise.own_metrics import OwnMetrics
from phasewise.tracing import MAX_NAMES, Requests, TracesRequest, trace_requests
from serving.errors import Misconfigured
from tests.traces.given_spans import ID, raw

CAPTURED = Path(__file__).parents[1] / "fixtures" / "vllm-0.32" / "traces" / "pair.jsonl"


async def test_captured_spans_become_requests_a_page_and_a_table(tmp_path: Path) -> None:
    told: list[str] = []
    screen = StringIO()
    out = tmp_path / "requests.jsonl"
    asked = TracesRequest(listen="127.0.0.1:0", grpc_port=0, file=out, metrics_port=0, model="tiny")
    run = asyncio.ensure_future(
        trace_requests(asked, Console(file=screen, width=160), announce=told.append)
    )
    while not told and not run.done():
        await asyncio.sleep(0)
    where = json.loads(told[0])
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession() as session:
        for line in CAPTURED.read_bytes().splitlines():
            async with session.post(where["http"], data=line, headers=headers) as answer:
                assert answer.status == 200
        async with session.get(where["metrics"]) as answer:
            page = await answer.text()
    assert urlsplit(where["grpc"]).port
    os.kill(os.getpid(), signal.SIGTERM)
    await run

    assert (
        'phasewise_request_part_seconds_count{model="tiny",part="kv_transfer",pool=""} 27.0' in page
    )
    lines = out.read_bytes().splitlines()
    assert len(lines) == 27 + 2 + 29
    assert len(decode_json(lines[0], max_spans=10)) == 6
    assert "first_decode_step" in screen.getvalue()
    assert "requests: 27 joined, 2 aggregated; 27 by request id, 29 no decode span" in (
        " ".join(screen.getvalue().split())
    )


async def test_ways_out_that_fail_cost_neither_table_nor_words() -> None:
    told: list[str] = []
    screen = StringIO()
    with socket.create_server(("127.0.0.1", 0)) as one:
        nobody = f"http://127.0.0.1:{one.getsockname()[1]}"
    asked = TracesRequest(listen="127.0.0.1:0", to=nobody, file=Path("/dev/full"))
    run = asyncio.ensure_future(
        trace_requests(asked, Console(file=screen, width=300), announce=told.append)
    )
    while not told and not run.done():
        await asyncio.sleep(0)
    async with aiohttp.ClientSession() as session:
        url, headers = json.loads(told[0])["http"], {"Content-Type": "application/json"}
        for line in CAPTURED.read_bytes().splitlines():
            async with session.post(url, data=line, headers=headers) as answer:
                assert answer.status == 200
    os.kill(os.getpid(), signal.SIGTERM)
    await run

    said = " ".join(screen.getvalue().split())
    assert "parts of requests" in said
    assert " lines not written" in said
    assert "lines were not written: /dev/full: No space left on device" in said
    assert f"spans were not taken: {nobody}/v1/traces: ClientConnectorError" in said


def test_names_that_never_repeat_do_not_fill_the_page() -> None:
    own = OwnMetrics(version="0")
    requests = Requests(Joiner(), own, ())
    for number in range(MAX_NAMES + 50):
        told = {"phasewise.phase": "both", "phasewise.pool": f"p{number}"}
        requests.take(
            [raw(request_id=f"{ID}{number}", span_id=f"{number + 1:016x}", resource=told)]
        )
    counts = [line for line in own.page().decode().splitlines() if "_count{" in line]

    assert len(counts) == 3 * (MAX_NAMES + 1)
    assert 'pool="other"' in counts[-1]


@pytest.mark.parametrize("listen", ["4318", ":1", "127.0.0.1:x", "127.0.0.1:70000"])
async def test_an_address_that_is_none_is_one_sentence(listen: str) -> None:
    with pytest.raises(Misconfigured, match="--listen"):
        await trace_requests(TracesRequest(listen=listen), Console(), announce=print)
