"""The load is played and the pages are read meanwhile; a pair that is not well is no recording."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from phasewise.reality import live
from phasewise.reality.pair import machine_words
from phasewise.reality.recording import TARGETS
from serving.errors import Unavailable
from serving.load.schedule import Mix
from tests.live_pair import made

SHORT = (
    Mix(
        seconds=0.2,
        rate_per_s=50.0,
        input_tokens_mean=20,
        input_tokens_spread=10,
        output_tokens_mean=3,
        output_tokens_spread=1,
    ),
)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MIXES", SHORT)
    monkeypatch.setattr(live, "QUIET_S", 0.0)
    monkeypatch.setattr(live, "SCRAPE_EVERY_S", 0.02)
    monkeypatch.setattr(live, "WARM_UP", live.WARM_UP[:1])


async def complete(request: web.Request) -> web.StreamResponse:
    """As vLLM streams: one token in a chunk, then usage, then the end mark."""
    asked = await request.json()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number in range(asked["max_tokens"]):
        choice = {"index": 0, "text": "a", "token_ids": [number], "finish_reason": None}
        await response.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
    usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": asked["max_tokens"]}
    await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response


async def refuse(_: web.Request) -> web.Response:
    return web.Response(status=500, text="no")


async def page(_: web.Request) -> web.Response:
    return web.Response(text="vllm:prompt_tokens_total 1.0\n")


@asynccontextmanager
async def pair(
    answer: Callable[[web.Request], object] = complete,
    metrics: Callable[[web.Request], object] = page,
) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_every_planned_request_is_in_the_recording_and_pages_of_all_targets() -> None:
    async with pair() as address:
        recording = await live.record(
            made.ABOUT,
            address=address,
            pages=dict.fromkeys(TARGETS, f"{address}/metrics"),
            seed=3,
        )

    planned = live.schedule(seed=3)
    assert [(r.input_tokens, r.output_tokens) for r in recording.requests] == [
        (p.input_tokens, p.output_tokens) for p in planned
    ]
    assert recording.failed == 0
    assert all(len(recording.of(target)) >= 2 for target in TARGETS)
    last_s = max(r.t_s + (r.e2e_s or 0.0) for r in recording.requests)
    assert recording.pages[-1].at_s >= last_s


async def test_a_failed_request_is_no_recording() -> None:
    async with pair(answer=refuse) as address:
        with pytest.raises(Unavailable, match="requests failed"):
            await live.record(
                made.ABOUT, address=address, pages=dict.fromkeys(TARGETS, f"{address}/metrics")
            )


async def test_a_page_that_does_not_answer_is_no_recording() -> None:
    async with pair(metrics=refuse) as address:
        with pytest.raises(Unavailable, match="answered 500"):
            await live.record(
                made.ABOUT, address=address, pages=dict.fromkeys(TARGETS, f"{address}/metrics")
            )


def test_the_load_is_the_same_for_a_seed_and_another_for_another() -> None:
    assert live.schedule(seed=1) == live.schedule(seed=1)
    assert live.schedule(seed=1) != live.schedule(seed=2)


def test_the_machine_is_told_in_words() -> None:
    assert "cores" in machine_words()
    assert machine_words().endswith("no accelerator")
