"""`phasewise traces`: receivers, joiner, ways out and own page put together, until a signal.

Wires only: what spans mean and how they are joined is in `collector/traces/`. Of finished requests
the newest `KEPT` are remembered, for the table at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from aiohttp import web
from rich.console import Console
from rich.table import Table

from collector.traces.join import WAIT_S, Joiner
from collector.traces.own_spans import own_spans
from collector.traces.parts import Outcome, RequestTrace
from collector.traces.spans import RawSpan, engine_span
from collector.traces.summary import PartSummary, summarise
from phasewise.own_metrics import CONTENT_TYPE, OwnMetrics
from serving.errors import Misconfigured, Unavailable

KEPT = 20_000
MAX_NAMES = 100
"""So many (model, pool) get series of their own; those of more are called `other`."""
LOOKS_EVERY_S = 1.0
_OTHER = ("other", "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracesRequest:
    """The options of the command, as given."""

    listen: str = "127.0.0.1:4318"
    grpc_port: int | None = None
    to: str | None = None
    file: Path | None = None
    metrics_port: int | None = None
    model: str = ""
    wait_s: float = WAIT_S


class Out(Protocol):
    """Where joined requests go."""

    def add(self, spans: Sequence[RawSpan]) -> None:
        """One more request, with its parts."""


class Requests:
    """What becomes of spans: joined, counted, measured, sent on. No I/O of its own."""

    def __init__(
        self, joiner: Joiner, own: OwnMetrics, outs: Sequence[Out], *, model: str = ""
    ) -> None:
        self.joiner = joiner
        self._own, self._outs, self._model = own, outs, model
        self._names: set[tuple[str, str]] = set()
        self.finished: deque[RequestTrace] = deque(maxlen=KEPT)
        self.other_spans = 0

    def take(self, spans: Iterable[RawSpan]) -> None:
        """Spans as they came."""
        for raw in spans:
            span = engine_span(raw)
            if span is None:
                self.other_spans += 1
            else:
                self._finish(self.joiner.take(span, time.monotonic()))

    def look(self) -> None:
        """Give up on those whose time is over."""
        self._finish(self.joiner.due(time.monotonic()))

    def end(self) -> None:
        """Give up on all that still wait."""
        self._finish(self.joiner.rest())

    def _finish(self, traces: Iterable[RequestTrace]) -> None:
        for trace in traces:
            self.finished.append(trace)
            spans = own_spans(trace, default_model=self._model or None)
            for out in self._outs:
                out.add(spans)
            for one in trace.parts:
                model, pool = self._bounded(
                    trace.model or self._model, trace.pool_of(one.part) or ""
                )
                self._own.observe_request_part(
                    one.part.value, model=model, pool=pool, seconds=one.duration_s
                )

    def _bounded(self, model: str, pool: str) -> tuple[str, str]:
        name = (model, pool)
        if name not in self._names and len(self._names) >= MAX_NAMES:
            return _OTHER
        self._names.add(name)
        return name


async def trace_requests(
    asked: TracesRequest, console: Console, *, announce: Callable[[str], None]
) -> None:
    """Run until SIGINT or SIGTERM, then draw the table. Announces addresses, as a line of JSON."""
    ended = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    host, port = _address(asked.listen)
    try:
        from collector.traces.export import LinesFile, OtlpSender
        from collector.traces.receiver import HttpReceiver
    except ImportError as error:
        raise _extra("otlp", error) from error
    async with contextlib.AsyncExitStack() as ways_out, contextlib.AsyncExitStack() as stack:
        sender = OtlpSender(asked.to) if asked.to else None
        if sender is not None:
            ways_out.push_async_callback(sender.close)
        outs: list[Out] = [] if sender is None else [sender]
        lines = LinesFile(asked.file) if asked.file is not None else None
        if lines is not None:
            ways_out.callback(lines.close)
            outs.append(lines)
        own = OwnMetrics(version=version("phasewise"))
        requests = Requests(Joiner(wait_s=asked.wait_s), own, outs, model=asked.model)
        where = {}
        receiver = HttpReceiver(requests.take)
        await receiver.start(host, port)
        stack.push_async_callback(receiver.stop)
        where["http"] = f"http://{host}:{receiver.port}/v1/traces"
        refusals = [receiver.counts]
        if asked.grpc_port is not None:
            try:
                from collector.traces.grpc_receiver import GrpcReceiver
            except ImportError as error:
                raise _extra("serve", error) from error
            by_grpc = GrpcReceiver(requests.take)
            await by_grpc.start(host, asked.grpc_port)
            stack.push_async_callback(by_grpc.stop)
            where["grpc"] = f"http://{host}:{by_grpc.port}"
            refusals.append(by_grpc.counts)
        if asked.metrics_port is not None:
            where["metrics"] = await _serve_page(stack, own, asked.metrics_port)
        announce(json.dumps(where))
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), LOOKS_EVERY_S)
            requests.look()
            if sender is not None:
                await sender.send()
        await stack.aclose()  # no more spans from here on
        requests.end()
    console.print(parts_table(summarise(requests.finished)))
    counts = requests.joiner.counts
    for received in refusals:
        counts.update({k: n for k, n in received.items() if k.startswith("refused")})
    if sender is not None:
        counts.update({f"spans {kind}": n for kind, n in sender.counts.items()})
    if lines is not None:
        counts.update({f"lines {kind}": n for kind, n in lines.counts.items()})
    console.print(counts_words(counts))
    if sender is not None and sender.counts["not taken"]:
        console.print(f"spans were not taken: {sender.last_problem}", markup=False)
    if lines is not None and lines.last_problem is not None:
        console.print(f"lines were not written: {asked.file}: {lines.last_problem}", markup=False)


def parts_table(found: Sequence[PartSummary]) -> Table:
    """Where the time goes, by part and pool."""
    table = Table(title="parts of requests", title_justify="left")
    table.add_column("part")
    table.add_column("pool")
    for name in ("requests", "mean", "p50", "p90"):
        table.add_column(name, justify="right")
    for one in found:
        times = (f"{s:.4f} s" for s in (one.mean_s, one.p50_s, one.p90_s))
        table.add_row(one.part, one.pool or "-", f"{one.requests:,}", *times)
    return table


def counts_words(counts: Counter[str]) -> str:
    """How many requests were joined, and why the others were not."""
    told = [Outcome.JOINED.value, Outcome.AGGREGATED.value]
    others = [f"{n:,} {kind}" for kind, n in sorted(counts.items()) if kind not in told and n]
    done = ", ".join(f"{counts[kind]:,} {kind}" for kind in told)
    return f"requests: {done}" + (f"; {', '.join(others)}" if others else "")


async def _serve_page(stack: contextlib.AsyncExitStack, own: OwnMetrics, port: int) -> str:
    async def page(_: web.Request) -> web.Response:
        return web.Response(body=own.page(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/metrics", page)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
    except OSError as error:
        raise Unavailable(f"cannot listen on 127.0.0.1:{port}: {error.strerror}") from error
    return f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise Misconfigured(
            "is no address", where="--listen", found=repr(listen), expected="HOST:PORT"
        )
    return host, int(port)


def _extra(name: str, error: ImportError) -> Misconfigured:
    return Misconfigured(
        "traces need one more extra",
        where="phasewise traces",
        found=str(error),
        expected=f"the packages of the extra {name}: pip install 'phasewise[{name}]'",
    )
