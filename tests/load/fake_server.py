"""A server of streamed completions on loopback that does what it is told, also wrong things."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Behave = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


@dataclass
class FakeServer:
    """Its address, what it was asked, and how it behaves to request number n (the last for all)."""

    url: str
    behaviours: list[Behave]
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        number = len(self.bodies)
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(request.headers)
        return await self.behaviours[min(number, len(self.behaviours) - 1)](request, body)


@asynccontextmanager
async def serving(*behaviours: Behave) -> AsyncIterator[FakeServer]:
    fake = FakeServer(url="", behaviours=list(behaviours))
    app = web.Application()
    app.router.add_post("/v1/completions", fake.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    fake.url = f"http://127.0.0.1:{port}"
    try:
        yield fake
    finally:
        await runner.cleanup()


def event(**chunk: Any) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def token(number: int, *, named: bool = True) -> bytes:
    choice: dict[str, Any] = {"index": 0, "text": f" {number}"}
    if named:
        choice["token_ids"] = [number]
    return event(choices=[choice])


def usage(body: dict[str, Any], tokens: int) -> bytes:
    return event(
        choices=[], usage={"prompt_tokens": len(body["prompt"]), "completion_tokens": tokens}
    )


DONE = b"data: [DONE]\n\n"


async def _begin(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    return response


async def streams(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Everything that was asked for, as an engine does."""
    if not body["stream"]:
        return web.json_response(
            {"choices": [{"text": f"{body['prompt'][0]}", "token_ids": body["prompt"][:3]}]}
        )
    response = await _begin(request)
    for number in range(body["max_tokens"]):
        await response.write(token(number))
    await response.write(usage(body, body["max_tokens"]) + DONE)
    return response


async def stops_early(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """One token fewer than asked, and a proper end."""
    return await streams(request, {**body, "max_tokens": body["max_tokens"] - 1})


async def cuts(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Two tokens, and the connection is gone."""
    response = await _begin(request)
    await response.write(token(0) + token(1))
    assert request.transport is not None
    request.transport.close()
    return response


async def ends_without_end_mark(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """All tokens and a proper end of the transfer, but no `[DONE]`."""
    response = await _begin(request)
    for number in range(body["max_tokens"]):
        await response.write(token(number))
    return response


async def says_an_error_in_the_stream(
    request: web.Request, body: dict[str, Any]
) -> web.StreamResponse:
    """One token, then an error, as vLLM says it after its 200."""
    response = await _begin(request)
    await response.write(token(0))
    await response.write(event(error={"message": "KV transfer failed", "code": 500}) + DONE)
    return response


async def stalls(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """One token and silence, until the client has gone."""
    response = await _begin(request)
    await response.write(token(0))
    await asyncio.Event().wait()
    return response


async def hangs(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """No answer at all, until the client has gone."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def closes_at_once(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """The connection is closed without an answer."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def answers(status: int, said: object) -> Behave:
    """A status with a body: JSON of anything but text."""

    async def behave(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if isinstance(said, str):
            return web.Response(status=status, text=said)
        return web.json_response(said, status=status)

    return behave
