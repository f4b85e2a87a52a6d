"""`phasewise run` over a simulated tier tells of every tick: what a receiver of OTLP gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from phasewise.running import run_all
from phasewise.settings import load_settings
from phasewise.tier_setup import simulation_plan
from serving.schema.tier import demo_tier_path, load_tier
from serving.simulation.server import SimulatedTierServer
from serving.simulation.tier import SimulatedTier
from serving.simulation.traffic import Request


async def test_every_tick_is_told_with_needs_leads_and_recorded_series(tmp_path: Path) -> None:
    got: list[ExportMetricsServiceRequest] = []

    async def receive(request: web.Request) -> web.Response:
        if request.path == "/v1/metrics":
            got.append(ExportMetricsServiceRequest.FromString(await request.read()))
        return web.Response()

    receiver = web.AppRunner(web.Application(), access_log=None)
    receiver.app.router.add_post("/{tail:.*}", receive)
    await receiver.setup()
    await web.TCPSite(receiver, "127.0.0.1", 0).start()
    traffic = [Request(i / 4, 900, 40) for i in range(4 * 200)]
    plan = simulation_plan(load_tier(demo_tier_path()), {"prefill": 2, "decode": 2})
    try:
        async with SimulatedTierServer(SimulatedTier(plan, traffic, seed=1)) as server:
            document = {
                "tiers": [{"file": str(demo_tier_path())}],
                "source": {"httpSd": f"{server.address}/sd"},
                "clock": {"kind": "lockstep", "url": server.address},
                "actuator": {"kind": "scale-endpoint", "url": server.address},
                "console": {"enabled": False},
                "otlp": {"endpoint": f"http://127.0.0.1:{receiver.addresses[0][1]}"},
                "recorded": {"supplier": "phasewise"},
            }
            (tmp_path / "phasewise.yaml").write_text(yaml.safe_dump(document))
            settings = load_settings(tmp_path / "phasewise.yaml")
            await run_all(settings, until_s=150.0, speed=None)
    finally:
        await receiver.cleanup()

    [resource] = got[-1].resource_metrics
    points: dict[str, Any] = {m.name: m for s in resource.scope_metrics for m in s.metrics}
    assert points["phasewise.last_tick_timestamp"].gauge.data_points[0].as_double == 150.0
    assert len(points["phasewise.need_replicas"].gauge.data_points) >= 2
    assert len(points["phasewise.lead"].gauge.data_points) == 4
    assert points["phasewise.scrape_duration"].histogram.data_points[0].count == 30
    assert len(points["phase.output_tokens.rate1m"].gauge.data_points) == 2
    decided = points["phasewise.decisions"].sum.data_points
    assert sum(point.as_double for point in decided) == 2 * 10
