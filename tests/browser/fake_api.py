"""The control plane's HTTP API played from recorded answers, so that any state can be shown.

It listens on 127.0.0.1 and does nothing by itself: a test says when an event is sent.
"""

from __future__ import annotations

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

FIXTURES = Path(__file__).parents[1] / "fixtures/console"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
TOKEN = "letmein"


def recorded(name: str) -> dict[str, Any]:
    """One recorded answer, anew each time, so that a test may change it."""
    answer: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
    return answer


def brief(view: dict[str, Any], ticks: int = 8) -> dict[str, Any]:
    """The same view with a short history, which a browser draws and checks faster."""

    def cut(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: cut(value) for key, value in part.items()}
        return part[-ticks:] if isinstance(part, list) else part

    return {**view, "history": cut(view["history"]), "decisions": view["decisions"][:ticks]}


def plotly_js() -> bytes:
    """The script that the plotly package carries."""
    return (files("plotly") / "package_data" / "plotly.min.js").read_bytes()


class FakeApi:
    """A control plane of one tier. `view` is what it shows, `asked` what it was asked for."""

    def __init__(self, view: dict[str, Any], *, has_plotly: bool = False) -> None:
        self.view = view
        self.why = recorded("why")
        self.plotly = plotly_js() if has_plotly else None
        self.asked: list[tuple[str, str, Any]] = []
        self.silent = False
        self.tick_age_s = 1.0
        self.refusal: tuple[int, str] | None = None
        self.streams: list[queue.SimpleQueue[bytes | None]] = []
        self.streams_begun = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    def send(self, view: dict[str, Any]) -> None:
        """The next tick: its view to everyone who listens, and to whoever connects from now on.

        A page that was asking anew just now may not have been heard yet: it is told then.
        """
        self.silent = False
        self.view = view
        for stream in list(self.streams):
            stream.put(event(view))

    def send_raw(self, data: bytes) -> None:
        """Anything at all, to everyone who listens."""
        for stream in list(self.streams):
            stream.put(data)

    def falls_silent(self) -> None:
        """Take connections from now on, and say nothing on them."""
        self.silent = True

    def hang_up(self) -> None:
        """End every stream, as a control plane that restarts does."""
        for stream in list(self.streams):
            stream.put(None)

    def __enter__(self) -> FakeApi:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hang_up()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def event(view: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return f"event: view\ndata: {json.dumps(view, allow_nan=False)}\n\n".encode()


def _handler(api: FakeApi) -> type[BaseHTTPRequestHandler]:
    console = files("dashboards") / "console"

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def date_time_string(self, timestamp: float | None = None) -> str:
            """The control plane's clock, by which its newest tick is as old as a test says."""
            at_s = api.view["at_s"] + api.tick_age_s if timestamp is None else timestamp
            return super().date_time_string(at_s)

        def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def answer_json(self, status: int, body: object) -> None:
            self.answer(status, json.dumps(body, allow_nan=False).encode())

        def stream(self) -> None:
            mine: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
            mine.put(b"retry: 100\n\n")
            api.streams.append(mine)  # first: what is sent from here on comes twice, never not
            api.streams_begun += 1
            if not api.silent:
                mine.put(event(api.view))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            try:
                while (data := mine.get()) is not None:
                    self.wfile.write(data)
                    self.wfile.flush()
            except (BrokenPipeError, ConnectionResetError):
                pass
            finally:
                api.streams.remove(mine)

        def static(self, name: str) -> None:
            if name == "plotly.min.js" and api.plotly is not None:
                self.answer(200, api.plotly, KINDS[".js"])
                return
            asset = console / name
            if "/" in name or not asset.is_file():
                self.answer_json(404, {"error": f"no {name} here"})
                return
            self.answer(200, asset.read_bytes(), KINDS[Path(name).suffix])

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            tier = f"/api/v1/tiers/{api.view['tier']}"
            if path == "/":
                self.static("index.html")
            elif path.startswith("/static/"):
                self.static(path.removeprefix("/static/"))
            elif path == "/api/v1/tiers":
                keys = ("mode", "at_s", "epoch")
                only = {"name": api.view["tier"], **{key: api.view[key] for key in keys}}
                self.answer_json(200, [only])
            elif path == f"{tier}/view":
                self.answer_json(200, api.view)
            elif path == f"{tier}/events":
                self.stream()
            elif path == f"{tier}/why":
                api.asked.append(("GET", self.path, None))
                if api.refusal:
                    self.answer_json(api.refusal[0], {"error": api.refusal[1]})
                else:
                    self.answer_json(200, api.why)
            else:
                self.answer_json(404, {"error": f"no {path} here"})

        def change(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            api.asked.append((method, self.path, json.loads(body) if body else None))
            if api.refusal:
                self.answer_json(api.refusal[0], {"error": api.refusal[1]})
            elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self.answer_json(401, {"error": "this token is not the one that is configured"})
            else:
                self.answer_json(200, {})

        def do_POST(self) -> None:
            self.change("POST")

        def do_DELETE(self) -> None:
            self.change("DELETE")

    return Handler
