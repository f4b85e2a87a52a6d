"""Sends joined requests on: to an OTLP/HTTP endpoint, or as JSON lines into a file.

Nobody waits for the endpoint: what it does not take is counted and gone, and no more than
`max_waiting` spans wait for it. A file's lines are in the form that OpenTelemetry Collector's file
receiver reads: each is one request with its parts.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

from collector.traces.otlp_json import encode_json
from collector.traces.spans import RawSpan
from collector.traces.wire import encode_protobuf
from serving.errors import Misconfigured, Unavailable

GIVES_UP_AFTER_S = 5.0
MAX_WAITING = 50_000
BATCH_SPANS = 512


class LinesFile:
    """Appends a line for each request, at once. What cannot be written is counted and gone.

    A line that was cut off (a disk that is full) stays so; the next begins on a line of its own.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise Misconfigured(
                "cannot be written", where=str(path), found=str(error), expected="a file to write"
            ) from error
        self._cut_off = False
        self.counts: Counter[str] = Counter()
        self.last_problem: str | None = None

    def add(self, spans: Sequence[RawSpan]) -> None:
        """One more request. Never raises OSError; `last_problem` says what the last one was."""
        line = encode_json(spans).encode() + b"\n"
        left = b"\n" + line if self._cut_off else line
        try:
            while left:
                written = self._file.write(left)
                if not written:
                    raise BlockingIOError("it takes nothing now")
                left = left[written:]
                self._cut_off = bool(left)
        except OSError as error:
            self.counts["not written"] += 1
            self.last_problem = error.strerror or str(error)

    def close(self) -> None:
        """No more. Never raises OSError."""
        try:
            self._file.close()
        except OSError as error:
            self.last_problem = error.strerror or str(error)


class OtlpSender:
    """Sends to `endpoint`/v1/traces (or to `endpoint` as it is, where it ends so)."""

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str] | None = None,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        base = endpoint.rstrip("/")
        if not base.startswith(("http://", "https://")):
            raise Misconfigured(
                "is no address", where="--to", found=endpoint[:80], expected="http://HOST:PORT"
            )
        self._url = base if base.endswith("/v1/traces") else f"{base}/v1/traces"
        self._headers = {"Content-Type": "application/x-protobuf", **(headers or {})}
        self._waiting: deque[RawSpan] = deque()
        self._max_waiting = max_waiting
        self._session: aiohttp.ClientSession | None = None
        self.counts: Counter[str] = Counter()
        self.last_problem: str | None = None

    def add(self, spans: Sequence[RawSpan]) -> None:
        """Have them wait for the next `send`; too many are dropped."""
        if len(self._waiting) + len(spans) > self._max_waiting:
            self.counts["dropped"] += len(spans)
            return
        self._waiting.extend(spans)

    async def send(self) -> None:
        """Send all that wait. Never raises; `last_problem` says what the last one was."""
        while self._waiting:
            size = min(BATCH_SPANS, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(size)]
            try:
                body = encode_protobuf(batch)
            except ValueError as error:  # something that protobuf cannot hold
                self.last_problem = f"cannot be encoded: {error}"
                self.counts["not taken"] += len(batch)
                continue
            try:
                await self._post(body)
            except Unavailable as problem:
                self.last_problem = str(problem)
                self.counts["not taken"] += len(batch)
                return  # it is down: the others are tried the next time
            self.counts["sent"] += len(batch)

    async def _post(self, body: bytes) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        try:
            async with (
                asyncio.timeout(GIVES_UP_AFTER_S),
                self._session.post(
                    self._url, data=body, headers=self._headers, allow_redirects=False
                ) as answer,
            ):
                if answer.status // 100 != 2:
                    raise Unavailable(f"{self._url}: answered {answer.status}")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise Unavailable(f"{self._url}: {type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Send the last and close the connections."""
        await self.send()
        session, self._session = self._session, None
        if session is not None:
            await session.close()
