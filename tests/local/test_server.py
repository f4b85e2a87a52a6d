"""The control endpoint of a local tier speaks as the simulated one does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from collector.discovery import read_groups
from serving.errors import Misconfigured
from serving.local.events import EventKind
from serving.local.server import LocalTierServer
from serving.types import Phase, ReplicaState
from tests.local.fakes import MakeTier, heard, until

SCALE = "/apis/phasewise.dev/v1alpha1/namespaces/default/pools/{}/scale"


@pytest.fixture
async def server(make_tier: MakeTier) -> AsyncIterator[LocalTierServer]:
    tier = await make_tier()
    async with LocalTierServer(tier) as started:
        yield started


async def call(server: LocalTierServer, path: str, method: str = "GET", **more: Any) -> Any:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, server.address + path, **more) as answer,
    ):
        return answer.status, await answer.json()


async def test_the_list_can_be_read_from_the_first_moment_on(server: LocalTierServer) -> None:
    await until(lambda: server.tier.replicas(), "a first replica")
    _, groups = await call(server, "/sd")
    starting = read_groups(groups)
    await heard(server.tier, EventKind.SERVES)
    _, groups = await call(server, "/sd")
    ready = read_groups(groups)

    assert set(starting.members) <= {"prefill-0001", "decode-0001"}
    assert {name: m.state for name, m in ready.members.items()} == {
        "prefill-0001": ReplicaState.READY,
        "decode-0001": ReplicaState.READY,
    }
    assert ready.phases["decode-0001"] is Phase.DECODE
    assert [router.dialect for router in ready.routers] == ["vllm-router"]


async def test_a_pool_is_scaled_by_its_scale_object(server: LocalTierServer) -> None:
    await heard(server.tier, EventKind.SERVES)
    status, scale = await call(server, SCALE.format("decode"))
    assert (status, scale["spec"], scale["status"]["replicas"]) == (200, {"replicas": 1}, 1)
    scale["spec"]["replicas"] = 2
    status, _ = await call(server, SCALE.format("decode"), "PUT", json=scale)
    assert status == 200
    await heard(server.tier, EventKind.READY, 3)

    status, refusal = await call(server, SCALE.format("decode"), "PUT", json=scale)
    assert (status, refusal["reason"]) == (409, "Conflict")
    status, _ = await call(server, SCALE.format("encode"))
    assert status == 404
    status, _ = await call(server, SCALE.format("decode"), "PUT", data="no")
    assert status == 400


async def test_it_says_what_happened_and_who_lives(server: LocalTierServer) -> None:
    await heard(server.tier, EventKind.SERVES)
    _, events = await call(server, "/events")
    _, startups = await call(server, "/startups")
    _, processes = await call(server, "/processes")
    _, status = await call(server, "/status")

    assert events[-1]["kind"] == "serves"
    assert {s["pool"] for s in startups} == {"prefill", "decode"}
    assert all(s["seconds"] > 0 and s["stages"] for s in startups)
    assert {p["replica"] for p in processes} == {"prefill-0001", "decode-0001", "router"}
    assert all(p["pid"] in p["members"] for p in processes)
    assert status["serves"] is True
    assert status["pools"]["decode"] == {"desired": 1, "ready": 1, "starting": 0, "draining": 0}


async def test_a_flip_is_on_the_list_twice_and_is_no_start(
    server: LocalTierServer,
) -> None:
    tier = server.tier
    tier.scale("decode", 2)
    await heard(tier, EventKind.READY, 3)
    tier.scale("decode", 1)
    tier.scale("prefill", 2)
    await heard(tier, EventKind.DRAINING)
    _, groups = await call(server, "/sd")
    found = read_groups(groups)
    states = {name: member.state for name, member in found.members.items()}
    await heard(tier, EventKind.FLIPPED)
    _, groups = await call(server, "/sd")
    after = read_groups(groups)

    assert states["prefill-0002"] is ReplicaState.STARTING
    assert found.members["prefill-0002"].created_s is None
    assert ReplicaState.DRAINING in states.values()
    assert after.members["prefill-0002"].state is ReplicaState.READY
    assert len(after.members) == 3


async def test_a_taken_port_is_named(server: LocalTierServer) -> None:
    port = int(server.address.rpartition(":")[2])

    with pytest.raises(Misconfigured, match=f"127.0.0.1:{port}"):
        LocalTierServer(server.tier, port=port)
