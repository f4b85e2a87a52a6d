"""Takes spans by OTLP/HTTP (protobuf or JSON, plain or gzip), with bounds on size, number and time.

`POST /v1/traces`. What is too large (also after decompression), too slow, garbage or of an unknown
form is refused with a status and one sentence, and counted; the sink hears of whole requests only.
It keeps nothing.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Callable, Sequence

from aiohttp import web

from collector.traces.otlp_json import decode_json
from collector.traces.spans import RawSpan
from collector.traces.wire import decode_protobuf
from serving.errors import Unavailable

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_SPANS = 20_000
BODY_WITHIN_S = 10.0
AT_ONCE = 8
_CHUNK_BYTES = 64 * 1024
_PROTOBUF, _JSON = "application/x-protobuf", "application/json"

Sink = Callable[[Sequence[RawSpan]], None]


class _Refused(Exception):
    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class HttpReceiver:
    """One listening port. `sink` gets each request's spans; it must not block.

    `max_body_bytes` bounds a body before and after decompression, `AT_ONCE` how many are held.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_spans: int = MAX_SPANS,
        body_within_s: float = BODY_WITHIN_S,
    ) -> None:
        self._sink = sink
        self._max_body_bytes, self._max_spans = max_body_bytes, max_spans
        self._body_within_s = body_within_s
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._runner: web.AppRunner | None = None
        self.counts: Counter[str] = Counter()
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; `port` 0 picks one, `self.port` says which. Raises Unavailable."""
        app = web.Application()
        app.router.add_post("/v1/traces", self._post)
        # Decompressed here, where its size is bounded.
        self._runner = web.AppRunner(
            app, access_log=None, auto_decompress=False, shutdown_timeout=1.0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            words = error.strerror or str(error)
            raise Unavailable(f"cannot listen on {host}:{port}: {words}") from error
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the port."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _post(self, request: web.Request) -> web.Response:
        try:
            async with self._slots:
                spans = await self._spans(request)
                self._sink(spans)
        except _Refused as refused:
            self.counts[f"refused with {refused.status}"] += 1
            return web.Response(status=refused.status, text=str(refused))
        self.counts["requests"] += 1
        if request.content_type == _JSON:
            return web.json_response({})
        return web.Response(body=b"", content_type=_PROTOBUF)

    async def _spans(self, request: web.Request) -> Sequence[RawSpan]:
        kind = request.content_type
        if kind not in (_PROTOBUF, _JSON):
            raise _Refused(415, f"{_PROTOBUF} or {_JSON}, not {kind[:60]}")
        try:
            async with asyncio.timeout(self._body_within_s):
                body = await self._body(request)
        except TimeoutError:
            raise _Refused(408, f"no whole body within {self._body_within_s:g} s") from None
        decode = decode_json if kind == _JSON else decode_protobuf
        try:
            return decode(body, max_spans=self._max_spans)
        except ValueError as error:
            raise _Refused(400, str(error)[:200]) from error

    async def _body(self, request: web.Request) -> bytes:
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", "", "gzip"):
            raise _Refused(415, f"encoded as {encoding[:40]!r}: gzip or not at all")
        unpack = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS) if encoding == "gzip" else None
        body, read = bytearray(), 0
        async for chunk in request.content.iter_chunked(_CHUNK_BYTES):
            read += len(chunk)
            room = self._max_body_bytes + 1 - len(body)
            try:
                body += chunk[:room] if unpack is None else unpack.decompress(chunk, room)
            except zlib.error as error:
                raise _Refused(400, "the body is not gzip") from error
            if max(read, len(body)) > self._max_body_bytes:
                raise _Refused(413, f"larger than {self._max_body_bytes} bytes")
        if unpack is not None and not unpack.eof:
            raise _Refused(400, "the compressed body is cut off")
        return bytes(body)
