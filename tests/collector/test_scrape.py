"""Fetching pages from a real server on loopback that behaves in every bad way."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from collector.scrape import Scraper, Target
from serving.errors import Unavailable

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_BYTES = 100_000
GOOD = b"vllm:num_requests_running 1\n"


def plain(body: bytes, **headers: str) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=body, headers=headers)

    return handle


class Misbehaving:
    """A server with one path for each way to misbehave; what hangs is let go at the end."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.here = 0
        self.most = 0
        self.full = asyncio.Event()
        self.asked: list[str] = []
        bomb = gzip.compress(b"a 1\n" * 5_000_000, compresslevel=1)
        self.paths: dict[str, Handler] = {
            "/good": plain(GOOD),
            "/gzip": plain(gzip.compress(GOOD), **{"Content-Encoding": "gzip"}),
            "/deflate": plain(zlib.compress(GOOD), **{"Content-Encoding": "deflate"}),
            "/html": plain(GOOD, **{"Content-Type": "text/html"}),
            "/binary": plain(bytes(range(256))),
            "/full": plain(b"x" * MAX_BYTES),
            "/huge": plain(b"x" * (MAX_BYTES + 1)),
            "/bomb": plain(bomb, **{"Content-Encoding": "gzip"}),
            "/cut-gzip": plain(gzip.compress(GOOD)[:-4], **{"Content-Encoding": "gzip"}),
            "/no-gzip": plain(GOOD, **{"Content-Encoding": "gzip"}),
            "/behind-gzip": plain(gzip.compress(GOOD) + b"x", **{"Content-Encoding": "gzip"}),
            "/brotli": plain(GOOD, **{"Content-Encoding": "br"}),
            "/endless": self.endless,
            "/slow": self.slow,
            "/trickle": self.trickle,
            "/broken-off": self.broken_off,
            "/500": self.refuse,
            "/moved": self.moved,
            "/crowd": self.crowd,
        }

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        return await self.paths[request.path](request)

    async def endless(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while not self.over.is_set():
            await answer.write(b"a 1\n" * 1_000)
        return answer

    async def slow(self, _: web.Request) -> web.StreamResponse:
        await self.over.wait()
        return web.Response()

    async def trickle(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(GOOD)
        await self.over.wait()
        return answer

    async def broken_off(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await answer.write(GOOD)
        assert request.transport is not None
        request.transport.close()
        return answer

    async def refuse(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=500, body=GOOD)

    async def moved(self, _: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/good")

    async def crowd(self, _: web.Request) -> web.StreamResponse:
        """Waits until as many as may are here at once."""
        self.here += 1
        self.most = max(self.most, self.here)
        if self.here == 3:
            self.full.set()
        await self.full.wait()
        self.here -= 1
        return web.Response(body=GOOD)


@pytest.fixture
async def server() -> AsyncIterator[tuple[TestServer, Misbehaving]]:
    behaviour = Misbehaving()
    app = web.Application()
    app.router.add_get("/{path:.*}", behaviour.answer)
    async with TestServer(app) as running:
        yield running, behaviour
        behaviour.over.set()


@pytest.fixture
async def scraper() -> AsyncIterator[Scraper]:
    async with Scraper(timeout_s=5.0, max_page_bytes=MAX_BYTES) as running:
        yield running


@pytest.mark.parametrize("path", ["/good", "/gzip", "/deflate", "/html"])
async def test_a_page_is_fetched_whatever_its_form(
    server: tuple[TestServer, Misbehaving], scraper: Scraper, path: str
) -> None:
    assert await scraper.fetch(str(server[0].make_url(path))) == GOOD


async def test_any_bytes_are_a_page_here(
    server: tuple[TestServer, Misbehaving], scraper: Scraper
) -> None:
    assert await scraper.fetch(str(server[0].make_url("/binary"))) == bytes(range(256))


async def test_a_page_as_large_as_allowed_is_fetched(
    server: tuple[TestServer, Misbehaving], scraper: Scraper
) -> None:
    assert await scraper.fetch(str(server[0].make_url("/full"))) == b"x" * MAX_BYTES


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/huge", "larger than 100000 bytes"),
        ("/bomb", "larger than 100000 bytes"),
        ("/endless", "larger than 100000 bytes"),
        ("/cut-gzip", "compressed page is cut off"),
        ("/no-gzip", "incorrect header check"),
        ("/behind-gzip", "behind the end"),
        ("/brotli", "encoded as 'br'"),
        ("/broken-off", "ClientPayloadError"),
        ("/500", "answered 500, not 200"),
        ("/moved", "answered 302, not 200"),
    ],
)
async def test_a_page_that_is_none_is_unavailable_in_one_sentence(
    server: tuple[TestServer, Misbehaving], scraper: Scraper, path: str, words: str
) -> None:
    problem = await scraper.fetch(str(server[0].make_url(path)))

    assert isinstance(problem, Unavailable)
    assert words in problem.what


@pytest.mark.parametrize("path", ["/slow", "/trickle"])
async def test_a_page_that_does_not_end_in_time_is_unavailable(
    server: tuple[TestServer, Misbehaving], path: str
) -> None:
    async with Scraper(timeout_s=0.05) as impatient:
        problem = await impatient.fetch(str(server[0].make_url(path)))

    assert isinstance(problem, Unavailable)
    assert "no whole page within 0.05 s" in problem.what


@pytest.mark.parametrize(
    ("url", "words"),
    [
        pytest.param(f"http://127.0.0.1:{unused_port()}/metrics", "cannot connect", id="refused"),
        ("no url at all", "no url at all"),
        ("ftp://127.0.0.1/metrics", "ftp"),
        ("http://127.0.0.1:99999/metrics", "99999"),
    ],
)
async def test_a_target_that_nobody_serves_is_unavailable(
    scraper: Scraper, url: str, words: str
) -> None:
    problem = await scraper.fetch(url)

    assert isinstance(problem, Unavailable)
    assert words in problem.what


async def test_bad_targets_do_not_hold_up_good_ones(
    server: tuple[TestServer, Misbehaving], scraper: Scraper
) -> None:
    names = ("good", "huge", "500", "gzip", "endless", "html")
    targets = [Target(name=name, url=str(server[0].make_url(f"/{name}"))) for name in names]
    pages = await scraper.scrape(targets)

    assert list(pages) == list(names)
    assert [name for name, page in pages.items() if page == GOOD] == ["good", "gzip", "html"]


async def test_no_more_pages_are_under_way_than_allowed(
    server: tuple[TestServer, Misbehaving],
) -> None:
    running, behaviour = server
    targets = [Target(name=f"r{i}", url=str(running.make_url("/crowd"))) for i in range(9)]
    async with Scraper(concurrency=3) as few:
        pages = await few.scrape(targets)

    assert set(pages.values()) == {GOOD}
    assert behaviour.most == 3


async def test_no_targets_are_no_pages(scraper: Scraper) -> None:
    assert await scraper.scrape([]) == {}
