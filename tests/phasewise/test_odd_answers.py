"""Clock and scale endpoints that answer with anything: one sentence, never a crash or gigabytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from autoscaler.json_answer import MAX_BYTES
from autoscaler.scale_client import ScaleClient
from phasewise.http_tier import LockstepClock
from serving.errors import Unavailable
from serving.testing import PREFILL

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        yield session, str(server.make_url(""))


def always(body: bytes, *, status: int = 200, encoding: str = "identity") -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers={"Content-Encoding": encoding})

    return handler


async def endless_blanks(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    try:
        for _ in range(1000):  # far more than is read: the client goes away
            await answer.write(b" " * MAX_BYTES)
        await answer.write(b'{"spec": {"replicas": 1}, "now_s": 1.0}')
    except (ConnectionError, aiohttp.ClientConnectionResetError):
        pass
    return answer


async def elsewhere(request: web.Request) -> web.StreamResponse:
    if request.path == "/elsewhere":
        return web.Response(body=b'{"spec": {"replicas": 1}, "now_s": 1.0}')
    raise web.HTTPFound("/elsewhere")


DEEP = b"[" * 30_000 + b"]" * 30_000
ODD: list[tuple[str, Handler, str]] = [
    ("deep", always(DEEP), "nested too deeply"),
    ("deep-object", always(b'{"a":' * 10_000 + b"1" + b"}" * 10_000), "nested too deeply"),
    ("null", always(b"null"), "NoneType, not an object"),
    ("list", always(b"[1]"), "list, not an object"),
    ("nothing", always(b""), "did not answer with JSON"),
    ("html", always(b"<html>"), "did not answer with JSON"),
    ("no-text", always(b"\xff\xfe{"), "did not answer with JSON"),
    ("nan", always(b'{"spec": {"replicas": NaN}, "now_s": NaN}'), "not a finite number"),
    ("infinite", always(b'{"spec": {"replicas": 1e999}, "now_s": 1e999}'), "not a finite number"),
    ("digits", always(b'{"now_s": ' + b"9" * 5000 + b"}"), "did not answer with JSON"),
    ("too-large", always(b" " * (MAX_BYTES + 1) + b"{}"), f"more than {MAX_BYTES} bytes"),
    ("endless", endless_blanks, f"more than {MAX_BYTES} bytes"),
    ("redirected", elsewhere, "answered 302"),
    ("failing", always(b"{}", status=500), "answered 500"),
    ("encoded", always(b"{}", encoding="br?"), "was not asked for"),
]


@pytest.mark.parametrize(("handler", "words"), [pytest.param(*row, id=name) for name, *row in ODD])
async def test_whatever_an_endpoint_sends_is_one_sentence(handler: Handler, words: str) -> None:
    async with answering(handler) as (session, url):
        clock = LockstepClock(session, base_url=url)
        scale = ScaleClient(session, base_url=url)
        with pytest.raises(Unavailable, match=words) as of_clock:
            await clock.next_scrape()
        with pytest.raises(Unavailable, match=words) as of_scale:
            await scale.desired_replicas("prefill")
        with pytest.raises(Unavailable, match=words):
            await scale.scale(PREFILL, 3, epoch=1)

    assert len(of_clock.value.what) < 300
    assert len(of_scale.value.what) < 300


@pytest.mark.parametrize(
    ("now_s", "words"),
    [
        pytest.param(b'"abc"', "gave now_s 'abc', not a number", id="text"),
        pytest.param(b"null", "gave now_s None, not a number", id="null"),
        pytest.param(b"true", "gave now_s True, not a number", id="truth"),
        pytest.param(b"[5]", "not a number", id="list"),
        pytest.param(b"1" + b"0" * 400, "not a number", id="too-large-for-a-float"),
        pytest.param(b"9.0", "went back from 10.000 to 9.000 s", id="back"),
    ],
)
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
async def test_a_clock_tells_a_time_that_goes_on(now_s: bytes, words: str, first: bool) -> None:
    async def handler(request: web.Request) -> web.Response:
        odd = request.method == "POST" or (first and now_s != b"9.0")
        return web.Response(body=b'{"now_s": ' + (now_s if odd else b"10.0") + b"}")

    async with answering(handler) as (session, url):
        with pytest.raises(Unavailable, match=words.replace("'", ".")):
            await LockstepClock(session, base_url=url).next_scrape()


@pytest.mark.parametrize("body", [b"{}", b'{"mode": "lockstep"}'])
async def test_a_clock_without_a_time_is_unavailable(body: bytes) -> None:
    async with answering(always(body)) as (session, url):
        with pytest.raises(Unavailable, match="gave now_s None"):
            await LockstepClock(session, base_url=url).next_scrape()


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        pytest.param(b"1" + b"0" * 40, "not between 0 and 1000000", id="ten-to-the-forty"),
        pytest.param(b"1000001", "not between", id="one-too-many"),
        pytest.param(b"-1", "not between", id="negative"),
        pytest.param(b"2.0", "gave replicas 2.0", id="not-whole"),
        pytest.param(b"true", "gave replicas True", id="truth"),
        pytest.param(b'"3"', "gave replicas '3'", id="text"),
        pytest.param(b"null", "gave replicas None", id="null"),
    ],
)
async def test_a_number_of_replicas_that_no_pool_has_is_refused(
    replicas: bytes, words: str
) -> None:
    async with answering(always(b'{"spec": {"replicas": ' + replicas + b"}}")) as (session, url):
        with pytest.raises(Unavailable, match=words):
            await ScaleClient(session, base_url=url).desired_replicas("prefill")


@pytest.mark.parametrize("replicas", [0, 1, 1_000_000])
async def test_any_other_number_is_read(replicas: int) -> None:
    body = b'{"spec": {"replicas": %d}}' % replicas
    async with answering(always(body)) as (session, url):
        assert await ScaleClient(session, base_url=url).desired_replicas("prefill") == replicas
