"""Fetch many pages at once, with a bound on how many, how long and how large. Never raises for one.

A page that is slow, endless, huge (also after decompression), refused or answered with an error is
an `Unavailable` with one sentence; the others go on. It does not look inside a page, and takes any
content type.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp

from serving.errors import Unavailable

MAX_PAGE_BYTES = 8 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_ACCEPT = {
    "Accept": "text/plain;version=0.0.4,*/*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One page to fetch: the replica's (or router's) name and the page's URL."""

    name: str
    url: str


class Scraper:
    """One client session for all pages. Use it as an async context manager, or call `close`.

    `timeout_s` bounds one page from connecting to its last byte, `max_page_bytes` its size after
    decompression, `concurrency` how many pages are under way at once.
    """

    def __init__(
        self,
        *,
        timeout_s: float = 2.0,
        max_page_bytes: int = MAX_PAGE_BYTES,
        concurrency: int = 32,
    ) -> None:
        self._timeout_s = timeout_s
        self._max_page_bytes = max_page_bytes
        self._concurrency = concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the session and its connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def scrape(self, targets: Iterable[Target]) -> dict[str, bytes | Unavailable]:
        """Every target's page, or why there is none, by the target's name."""
        wanted = tuple(targets)
        pages = await asyncio.gather(*(self.fetch(target.url) for target in wanted))
        return {target.name: page for target, page in zip(wanted, pages, strict=True)}

    async def fetch(self, url: str) -> bytes | Unavailable:
        """One page, or why there is none."""
        async with self._slots:
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._get(url)
            except TimeoutError:
                return Unavailable(f"{url}: no whole page within {self._timeout_s:g} s")
            except Unavailable as problem:
                return problem
            except aiohttp.ClientConnectorError as error:
                return Unavailable(f"{url}: cannot connect: {error.os_error.strerror or error}")
            except (aiohttp.ClientError, ValueError, OSError, zlib.error) as error:
                return Unavailable(f"{url}: {type(error).__name__}: {str(error)[:200]}")

    async def _get(self, url: str) -> bytes:
        async with self._opened().get(url, headers=_ACCEPT, allow_redirects=False) as answer:
            if answer.status != 200:
                raise Unavailable(f"{url}: answered {answer.status}, not 200")
            encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
            unpack = _unpacker(encoding)
            page = bytearray()
            async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
                room = self._max_page_bytes + 1 - len(page)
                page += chunk[:room] if unpack is None else unpack.decompress(chunk, room)
                if len(page) > self._max_page_bytes:
                    raise Unavailable(f"{url}: larger than {self._max_page_bytes} bytes")
                if unpack is not None and unpack.unused_data:
                    raise Unavailable(f"{url}: more bytes behind the end of the compressed page")
            if unpack is not None and not unpack.eof:
                raise Unavailable(f"{url}: the compressed page is cut off")
            return bytes(page)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._concurrency),
                auto_decompress=False,  # done here, where its size is bounded
                timeout=aiohttp.ClientTimeout(total=None),
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def _unpacker(encoding: str) -> zlib._Decompress | None:
    match encoding:
        case "identity" | "":
            return None
        case "gzip" | "x-gzip":
            return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        case "deflate":
            return zlib.decompressobj()
        case _:
            raise Unavailable(f"the page is encoded as {encoding[:40]!r}, which was not asked for")
