"""From pages to KEDA's answer: a run that publishes, and the server beside it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from autoscaler.plan_codec import load_published
from phasewise.keda import run_beside
from phasewise.places import plan_file
from phasewise.running import run_all
from phasewise.settings import load_settings
from phasewise.tier_setup import simulation_plan
from serving.schema.tier import demo_tier_path, load_tier
from serving.simulation.server import SimulatedTierServer
from serving.simulation.tier import SimulatedTier
from serving.simulation.traffic import Request
from tests.phasewise.keda_client import Interface

SIZES = {"prefill": 1, "decode": 1}  # too few for what comes


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _settings_file(folder: Path, address: str, *, mode: str, port: int) -> Path:
    (folder / "tier.yaml").write_text(demo_tier_path().read_text())
    file = folder / "phasewise.yaml"
    document: dict[str, Any] = {
        "tiers": [{"file": "tier.yaml", "mode": mode}],
        "source": {"httpSd": f"{address}/sd"},
        "clock": {"kind": "lockstep", "url": address},
        "actuator": {"kind": "keda", "url": address},
        "serve": {"withRun": True, "port": port},
        "console": {"enabled": False},
    }
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.mark.parametrize(
    ("mode", "status"),
    [("act", grpc.StatusCode.OK), ("advise", grpc.StatusCode.FAILED_PRECONDITION)],
)
async def test_keda_is_told_what_the_run_decided_and_the_run_leaves_scaling_to_it(
    tmp_path: Path, mode: str, status: grpc.StatusCode
) -> None:
    interface = Interface(tmp_path)
    port = _free_port()
    requests = [Request(0.08 * number, 1200, 150) for number in range(600)]
    simulated = SimulatedTier(simulation_plan(load_tier(demo_tier_path()), SIZES), requests, seed=1)
    answers: dict[str, int] = {}
    statuses: set[grpc.StatusCode] = set()

    async def ask(channel: grpc.aio.Channel, pool: str) -> None:
        request = interface.message(
            "GetMetricsRequest",
            scaledObjectRef=interface.reference(tier="demo", pool=pool),
            metricName=f"phasewise-demo-{pool}",
        )
        while True:  # the server looks at the plan every half second
            try:
                answer = await interface.call(channel, "GetMetrics", request)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    continue
                statuses.add(error.code())
                return
            statuses.add(grpc.StatusCode.OK)
            answers[pool] = answer.metricValues[0].metricValue
            return

    async with SimulatedTierServer(simulated, router_page="epp") as server:
        settings = load_settings(_settings_file(tmp_path, server.address, mode=mode, port=port))

        async def run() -> None:
            await run_all(settings, until_s=15.0, speed=None)
            address = f"127.0.0.1:{port}"
            async with asyncio.timeout(60.0), grpc.aio.insecure_channel(address) as channel:
                for pool in SIZES:
                    await ask(channel, pool)

        await run_beside(settings, run)

    published = load_published(plan_file(settings.ledger.file).read_bytes())
    decided = {d.pool.name: d.replicas for d in published.plan.decisions}
    assert statuses == {status}
    assert answers == (decided if mode == "act" else {})
    assert decided != SIZES
    assert {pool: simulated.pool_counts(pool).desired for pool in SIZES} == SIZES
