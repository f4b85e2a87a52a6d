"""The console and its API over HTTP: reads for everyone who can connect, overrides with a token.

Serves what the boards show and the console's files; decides nothing. A fault is answered with a
status and one sentence of plain text.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog
from aiohttp import web

import dashboards
from dashboards.plotly_js import plotly_js_file
from phasewise.loopback import is_loopback
from phasewise.overrides import override_from, pool_of
from phasewise.tier_board import TierBoard, to_json
from serving.errors import Misconfigured, Unavailable

CONSOLE_FOLDER = Path(str(dashboards.__file__)).parent / "console"
_LARGEST_BODY_BYTES = 16 * 1024
_MOST_STREAMS = 100
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
}
_log = structlog.get_logger("phasewise")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """Where to listen and who may ask for overrides.

    Without a token file nobody may, and only loopback is listened on. `metrics` gives the page of
    our own metrics; without it there is none.
    """

    host: str = "127.0.0.1"
    port: int = 9321
    token_file: Path | None = None
    console_folder: Path = CONSOLE_FOLDER
    metrics: Callable[[], bytes] | None = None
    heartbeat_s: float = 10.0


def read_token(file: Path) -> str:
    """The token in a file, without white space around it; Misconfigured where there is none."""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise Misconfigured(
            "the console's token cannot be read",
            where=str(file),
            found=type(error).__name__,
            expected="a text file with the token alone",
        ) from error
    if not token:
        raise Misconfigured(
            "the console's token is empty", where=str(file), found="nothing", expected="a token"
        )
    return token


class Api:
    """Boards over HTTP; `async with` starts and stops it, `address` says where it listens."""

    def __init__(self, boards: Sequence[TierBoard], settings: ApiSettings) -> None:
        if settings.token_file is None and not is_loopback(settings.host):
            raise Misconfigured(
                "the console is for this machine alone unless it has a token",
                where="console.host",
                found=settings.host,
                expected="127.0.0.1, or a tokenFile",
            )
        if settings.token_file is not None:
            read_token(settings.token_file)
        self._boards = {board.name: board for board in boards}
        self._settings = settings
        self._streams: set[asyncio.Task[object]] = set()
        self._runner: web.AppRunner | None = None
        self._ending = False
        self.address = ""

    def show(self, board: TierBoard) -> None:
        """Show one more tier, also while this runs."""
        self._boards[board.name] = board

    async def __aenter__(self) -> Api:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; once. Misconfigured where the address cannot be had."""
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, self._settings.host, self._settings.port)
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise Misconfigured(
                "the console cannot listen",
                where="console.port",
                found=f"{self._settings.host}:{self._settings.port}: {error.strerror or error}",
                expected="a free port; 0 takes one",
            ) from error
        host, port = runner.addresses[0][:2]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._runner = runner

    async def stop(self) -> None:
        """End the streams, then the server."""
        self._ending = True
        for stream in tuple(self._streams):
            stream.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def application(self) -> web.Application:
        """The routes, without a server around them."""
        app = web.Application(middlewares=[_sentences], client_max_size=_LARGEST_BODY_BYTES)
        tier = "/api/v1/tiers/{tier}"
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/healthz", self._health),
                web.get("/metrics", self._metrics),
                web.get("/static/plotly.min.js", self._plotly),
                web.get("/api/v1/tiers", self._tiers),
                web.get(f"{tier}/view", self._view),
                web.get(f"{tier}/why", self._why),
                web.get(f"{tier}/events", self._events),
                web.post(f"{tier}/overrides", self._put_override),
                web.delete(f"{tier}/overrides/{{pool}}", self._drop_override),
            ]
        )
        if self._settings.console_folder.is_dir():
            app.router.add_static("/static/", self._settings.console_folder)
        return app

    async def _page(self, _: web.Request) -> web.StreamResponse:
        page = self._settings.console_folder / "index.html"
        if not page.is_file():
            raise web.HTTPNotFound(text="the console's page is not installed")
        return web.FileResponse(page)

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        if self._settings.metrics is None:
            raise web.HTTPNotFound(text="there are no metrics here")
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=self._settings.metrics(), headers=headers)

    async def _plotly(self, _: web.Request) -> web.StreamResponse:
        file = plotly_js_file()
        if file is None:
            raise web.HTTPNotFound(text="charts need plotly: install phasewise[report]")
        return web.FileResponse(file)

    async def _tiers(self, _: web.Request) -> web.StreamResponse:
        rows = [
            {
                "name": board.name,
                "mode": board.mode,
                "at_s": None if board.newest is None else board.newest.at_s,
                "epoch": None if board.newest is None else board.newest.epoch,
            }
            for board in self._boards.values()
        ]
        return _json(to_json(rows))

    def _board(self, request: web.Request) -> TierBoard:
        name = request.match_info["tier"]
        board = self._boards.get(name)
        if board is None:
            known = ", ".join(self._boards) or "none yet"
            raise web.HTTPNotFound(text=f"there is no tier {name[:64]!r} here; there is: {known}")
        return board

    async def _view(self, request: web.Request) -> web.StreamResponse:
        return _json(self._board(request).view_json())

    async def _why(self, request: web.Request) -> web.StreamResponse:
        board = self._board(request)
        pool, epoch = request.query.get("pool"), request.query.get("epoch")
        if pool is None:
            raise web.HTTPBadRequest(text="which pool? ask with ?pool=NAME")
        if epoch is not None and not (epoch.isascii() and epoch.isdigit() and len(epoch) < 16):
            raise web.HTTPBadRequest(text="epoch must be a whole number")
        try:
            found = board.why_json(pool, epoch=None if epoch is None else int(epoch))
        except Unavailable as error:
            raise web.HTTPNotFound(text=error.what) from error
        if found is None:
            raise web.HTTPNotFound(text=f"tier {board.name} has no pool {pool[:64]!r}")
        return _json(found)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """The view at connect and after every change; a slow reader gets the newest, not all."""
        board = self._board(request)
        if len(self._streams) >= _MOST_STREAMS:
            raise web.HTTPServiceUnavailable(text=f"more than {_MOST_STREAMS} pages are open")
        answer = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            await answer.prepare(request)
            sent = 0 if board.newest is None else -1
            while True:
                try:
                    async with asyncio.timeout(self._settings.heartbeat_s):
                        await board.newer_than(sent)
                except TimeoutError:
                    await answer.write(b": alive\n\n")
                    continue
                sent = board.version
                if board.newest is not None:
                    await answer.write(b"event: view\ndata: " + board.view_json() + b"\n\n")
        except ConnectionError:
            return answer
        except asyncio.CancelledError:
            if not self._ending:
                raise
            return answer  # so that the reader sees a whole stream end, not a broken one
        finally:
            self._streams.discard(task)

    async def _put_override(self, request: web.Request) -> web.StreamResponse:
        board = self._board(request)
        self._authorise(request)
        now_s = board.overrides.now_s
        if now_s is None:
            raise web.HTTPBadRequest(
                text=f"tier {board.name} was not looked at yet: ask again soon"
            )
        try:
            body = json.loads(await request.text())
        except ValueError as error:
            raise web.HTTPBadRequest(text="the body is not JSON") from error
        override = override_from(body, board.settings, now_s=now_s)
        board.overrides.put(override)
        board.touch()
        _log.info("override set", tier=board.name, at_s=now_s, **asdict(override))
        return _json(to_json(override))

    async def _drop_override(self, request: web.Request) -> web.StreamResponse:
        board = self._board(request)
        self._authorise(request)
        pool = pool_of(request.match_info["pool"], board.settings).pool.name
        dropped = board.overrides.drop(pool)
        if dropped:
            board.touch()
            _log.info("override taken back", tier=board.name, pool=pool)
        return _json(to_json({"pool": pool, "dropped": dropped}))

    def _authorise(self, request: web.Request) -> None:
        """The file is read each time, so that a token can be changed while this runs."""
        if self._settings.token_file is None:
            raise web.HTTPForbidden(
                text="overrides are off: the settings name no console.tokenFile"
            )
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        try:
            wanted = read_token(self._settings.token_file)
        except Misconfigured as error:
            _log.warning("nobody can override", why=str(error))
            raise web.HTTPForbidden(text="overrides are off: the token cannot be read") from error
        if kind.lower() != "bearer" or not hmac.compare_digest(
            given.strip().encode(errors="replace"), wanted.encode()
        ):
            raise web.HTTPUnauthorized(
                text="overrides need the token of the console",
                headers={"WWW-Authenticate": "Bearer"},
            )


@web.middleware
async def _sentences(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Our two errors as a status and a sentence; the same headers on every answer."""
    try:
        answer = await handler(request)
    except Misconfigured as error:
        answer = web.Response(status=400, text=str(error))
    except Unavailable as error:
        answer = web.Response(status=503, text=error.what)
    except web.HTTPException as error:
        error.headers.update(_HEADERS)
        raise
    if not answer.prepared:
        answer.headers.update(_HEADERS)
    return answer


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
