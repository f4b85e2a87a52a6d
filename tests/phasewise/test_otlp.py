"""Our metrics and ticks by OTLP, decoded from what a local receiver really got."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from autoscaler.types import Decision, Plan, Reason
from phasewise.metering import Part, TickDurations
from phasewise.otlp import UNITS, otlp_name
from phasewise.settings import OtlpSettings
from phasewise.telling import read_headers, telling
from serving.catalogue import Owner, Unit
from serving.errors import Misconfigured
from serving.series import SERIES
from serving.testing import DECODE, make_observation, make_pool_state, make_sample
from serving.types import Slo

SLO = Slo(ttft_s=2.0, itl_s=0.05, attainment_ratio=0.95)
START_S = 1_800_000_000.0
DURATIONS = TickDurations(
    observe=(
        Part(start_s=START_S, duration_s=0.02),
        Part(start_s=START_S + 5.0, duration_s=0.03),
    ),
    plan=Part(start_s=START_S + 5.1, duration_s=0.004),
    act=Part(start_s=START_S + 5.104, duration_s=0.2),
)


@dataclass
class Receiver:
    """An OTLP/HTTP receiver that keeps what it gets."""

    url: str = ""
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)

    async def get_metrics(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers)
        self.metrics.append(ExportMetricsServiceRequest.FromString(await request.read()))
        return web.Response()

    async def get_traces(self, request: web.Request) -> web.Response:
        self.traces.append(ExportTraceServiceRequest.FromString(await request.read()))
        return web.Response()

    def points(self) -> dict[str, Any]:
        """The metrics of the last export, by name."""
        [resource] = self.metrics[-1].resource_metrics
        return {one.name: one for scope in resource.scope_metrics for one in scope.metrics}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    one = Receiver()
    app = web.Application()
    app.router.add_post("/v1/metrics", one.get_metrics)
    app.router.add_post("/v1/traces", one.get_traces)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    one.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield one
    await runner.cleanup()


def labels(point: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in point.attributes}


async def send(receiver: Receiver, *, headers_file: Path | None = None, recorded: bool = False):
    written = {"endpoint": receiver.url, "headersFile": headers_file and str(headers_file)}
    settings = OtlpSettings.model_validate(written)
    decision = Decision(
        pool=DECODE, replicas=5, hold=False, reason=Reason.DEMAND_ROSE, words="more is asked"
    )
    plan = Plan(tier="demo", epoch=7, at_s=15.0, policy="test", decisions=(decision,))
    seen = make_observation(
        make_sample(DECODE, at_s=15.0, output_tokens_per_s=900.0),
        at_s=15.0,
        pools=(make_pool_state(DECODE, at_s=15.0, desired=4),),
    )
    async with telling(otlp=settings, supplies_recorded=recorded) as told:
        for sink in told.sinks:
            sink.observe_tick(plan, (seen,), None, DURATIONS, slo=SLO)


async def test_metrics_arrive_with_dots_units_and_only_what_is_known(receiver: Receiver) -> None:
    await send(receiver, recorded=True)
    points = receiver.points()

    desired = points["phasewise.desired_replicas"]
    [point] = desired.gauge.data_points
    assert (desired.unit, point.as_double) == ("{replica}", 4.0)
    assert labels(point) == {"tier": "demo", "pool": "decode", "phase": "decode"}
    decisions = points["phasewise.decisions"]
    assert decisions.sum.is_monotonic
    assert decisions.sum.data_points[0].as_double == 1.0
    scrapes = points["phasewise.scrape_duration"]
    [histogram] = scrapes.histogram.data_points
    assert (scrapes.unit, histogram.count) == ("s", 2)
    assert histogram.sum == pytest.approx(0.05)
    assert 0.025 in histogram.explicit_bounds
    assert points["phase.output_tokens.rate1m"].gauge.data_points[0].as_double == 900.0
    for absent in ("phasewise.demand", "phasewise.wanted_replicas", "phase.itl_seconds.mean1m"):
        assert absent not in points


async def test_a_tick_is_one_trace_with_its_parts_inside(receiver: Receiver) -> None:
    await send(receiver)
    spans = [
        span
        for request in receiver.traces
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    [root] = [span for span in spans if not span.parent_span_id]
    parts = [span for span in spans if span.parent_span_id == root.span_id]

    assert root.name == "tick"
    assert [span.name for span in parts] == ["observe", "observe", "plan", "act"]
    assert {span.trace_id for span in spans} == {root.trace_id}
    assert root.start_time_unix_nano == round(START_S * 1e9)
    assert parts[2].end_time_unix_nano - parts[2].start_time_unix_nano == pytest.approx(
        4e6, abs=1e3
    )
    assert all(span.end_time_unix_nano <= root.end_time_unix_nano for span in parts)
    assert [event.name for event in root.events] == ["decided"]


async def test_headers_come_from_a_file(receiver: Receiver, tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("# for the gateway\nAuthorization: Bearer secret:1\n\nX-Scope: a\n")
    await send(receiver, headers_file=file)

    assert receiver.headers[0]["Authorization"] == "Bearer secret:1"
    assert receiver.headers[0]["X-Scope"] == "a"


def test_a_line_that_is_no_header_is_refused_without_showing_it(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("X-Scope: a\nhunter2\n")

    with pytest.raises(Misconfigured) as told:
        read_headers(file)

    assert "line 2" in str(told.value)
    assert "hunter2" not in str(told.value)
    with pytest.raises(Misconfigured, match="headers"):
        read_headers(tmp_path / "none")


async def test_without_the_extra_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "phasewise.otlp":
            raise ModuleNotFoundError("no", name="opentelemetry")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Misconfigured) as told:
        async with telling(otlp=OtlpSettings(endpoint="http://127.0.0.1:1")):
            pass

    assert "phasewise[otlp]" in str(told.value)
    assert "\n" not in str(told.value)


async def test_an_endpoint_that_is_away_delays_no_tick_and_raises_nothing() -> None:
    gone = Receiver(url="http://127.0.0.1:9")

    async with asyncio.timeout(60.0):
        await send(gone)


def test_names_differ_and_translate_back_to_the_pages() -> None:
    """By OpenTelemetry's rules for Prometheus: dots to underscores, then unit and type."""
    ours = [s for s in SERIES if s.owner is Owner.PHASEWISE]
    names = [otlp_name(spec) for spec in SERIES if spec.owner in (Owner.PHASEWISE, Owner.RECORDED)]
    ends = {Unit.SECONDS: "_seconds", Unit.RATIO: "_ratio", Unit.TOKENS_PER_S: "_per_second"}

    assert len(set(names)) == len(names)
    assert set(UNITS) == set(Unit)
    for spec in ours:
        end = "_total" if spec.type.value == "counter" else ends.get(spec.unit, "")
        assert otlp_name(spec).replace(".", "_") + end == spec.name
