"""The simulated tier over real sockets: pages, discovery, scale, clock, faults, both modes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from collector.exposition import read_page
from serving.dialects import epp, vllm, vllm_router
from serving.errors import Misconfigured
from serving.simulation.profile import load_profile
from serving.simulation.server import SimulatedTierServer
from serving.simulation.tier import PoolPlan, SimulatedTier, TierPlan
from serving.simulation.traffic import Request
from serving.types import Phase

PROFILE = load_profile("llama-3.1-8b-l40s")
SCALE = "/apis/phasewise.dev/v1alpha1/namespaces/default/pools/{}/scale"


def tier(*, requests: int = 300) -> SimulatedTier:
    pools = tuple(
        PoolPlan(
            name=phase.value,
            phase=phase,
            variant="l40s",
            profile=PROFILE,
            initial_replicas=2,
            start_s=20.0,
        )
        for phase in (Phase.PREFILL, Phase.DECODE)
    )
    traffic = [Request(i / 10, 300, 20 + i % 30) for i in range(requests)]
    plan = TierPlan(name="tier", model="llama", pools=pools, router_policy="round_robin")
    return SimulatedTier(plan, traffic, seed=3)


class Client:
    """A person with curl."""

    def __init__(self, session: aiohttp.ClientSession, server: SimulatedTierServer) -> None:
        self.session = session
        self.server = server

    async def call(self, method: str, path: str, **kwargs: Any) -> tuple[int, Any]:
        async with self.session.request(method, self.server.address + path, **kwargs) as answer:
            return answer.status, await answer.json()

    async def text(self, path: str) -> tuple[int, str]:
        async with self.session.get(self.server.address + path) as answer:
            return answer.status, await answer.text()

    async def advance(self, seconds: float) -> Any:
        status, body = await self.call("POST", "/clock/advance", json={"seconds": seconds})
        assert status == 200
        return body

    async def targets(self) -> dict[str, dict[str, str]]:
        """Labels by replica, with the address among them; the router under its job."""
        _, groups = await self.call("GET", "/sd")
        return {
            group["labels"].get("replica", "router"): {
                **group["labels"],
                "address": group["targets"][0],
            }
            for group in groups
        }

    async def page(self, address: str) -> bytes | None:
        """The page, or `None` where the connection is refused."""
        try:
            async with self.session.get(f"http://{address}/metrics") as answer:
                assert answer.status == 200
                return await answer.read()
        except aiohttp.ClientConnectorError:
            return None

    async def pages(self) -> dict[str, bytes | None]:
        return {
            name: await self.page(labels["address"])
            for name, labels in (await self.targets()).items()
        }

    async def fault(self, kind: str, pool: str, **more: object) -> None:
        status, body = await self.call("POST", "/faults", json={"kind": kind, "pool": pool, **more})
        assert status == 200, body


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    # a new connection for each request, so that a closed port shows
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as opened:
        yield opened


@pytest.fixture
async def client(session: aiohttp.ClientSession) -> AsyncIterator[Client]:
    async with SimulatedTierServer(tier()) as server:
        yield Client(session, server)


def output_tokens(page: bytes) -> float | None:
    read = read_page(page, vllm.WANTED)
    return vllm.replica_reading(read, replica="r", at_s=0.0, phase=Phase.DECODE).output_tokens


async def test_every_ready_replica_answers_on_its_own_port(client: Client) -> None:
    await client.advance(20.0)
    targets = await client.targets()
    pages = await client.pages()

    assert len({labels["address"] for labels in targets.values()}) == 5
    for replica in client.server.tier.replicas():
        body = pages[replica.name]
        assert body is not None
        assert replica.telemetry is not None
        assert output_tokens(body) == replica.telemetry.output_tokens > 0


async def test_discovery_says_everything_about_a_replica(client: Client) -> None:
    labels = (await client.targets())["prefill-0001"]
    del labels["address"]

    assert labels == {
        "__meta_phasewise_replica": "prefill-0001",
        "__meta_phasewise_pool": "prefill",
        "__meta_phasewise_phase": "prefill",
        "__meta_phasewise_variant": "l40s",
        "__meta_phasewise_state": "ready",
        "__meta_phasewise_created_s": "0.0",
        "replica": "prefill-0001",
        "tier": "tier",
        "pool": "prefill",
        "phase": "prefill",
        "job": "vllm",
    }


async def test_a_starting_replica_has_a_port_that_refuses_until_it_is_ready(
    client: Client,
) -> None:
    await client.call("PUT", SCALE.format("decode"), json={"spec": {"replicas": 3}})
    starting = (await client.targets())["decode-0003"]

    assert starting["__meta_phasewise_state"] == "starting"
    assert starting["__meta_phasewise_stage"]
    assert await client.page(starting["address"]) is None

    await client.advance(20.0)
    ready = (await client.targets())["decode-0003"]

    assert ready["__meta_phasewise_state"] == "ready"
    assert "__meta_phasewise_stage" not in ready
    assert ready["address"] == starting["address"]
    assert await client.page(ready["address"]) is not None


async def test_a_draining_replica_answers_until_it_is_gone(client: Client) -> None:
    await client.advance(10.03)
    await client.call("PUT", SCALE.format("decode"), json={"spec": {"replicas": 1}})
    [draining] = [
        labels
        for labels in (await client.targets()).values()
        if labels.get("__meta_phasewise_state") == "draining"
    ]
    assert await client.page(draining["address"]) is not None

    await client.advance(60.0)

    assert draining["replica"] not in await client.targets()
    assert await client.page(draining["address"]) is None


async def test_a_kept_connection_to_a_replica_that_is_gone_gets_no_page(client: Client) -> None:
    async with aiohttp.ClientSession() as keeping:
        url = f"http://{(await client.targets())['decode-0001']['address']}/metrics"
        async with keeping.get(url) as answer:
            await answer.read()
        await client.fault("kill", "decode", replicas="decode-0001")

        with pytest.raises(aiohttp.ClientError):
            async with keeping.get(url) as answer:
                answer.raise_for_status()


# --- the router's page


async def test_the_endpoint_picker_has_its_own_page(client: Client) -> None:
    await client.advance(20.0)
    router = (await client.targets())["router"]
    body = await client.page(router["address"])
    assert body is not None
    reading = epp.router_reading(read_page(body, epp.WANTED), at_s=20.0)

    assert (router["job"], router["tier"]) == ("router", "tier")
    assert router["__meta_phasewise_router"] == "epp"
    assert reading.requests == client.server.tier.router.requests == 201


async def test_the_poorer_router_s_page_names_workers_by_their_ports(
    session: aiohttp.ClientSession,
) -> None:
    async with SimulatedTierServer(tier(), router_page="vllm-router") as server:
        client = Client(session, server)
        await client.advance(20.0)
        targets = await client.targets()
        body = await client.page(targets["router"]["address"])
        assert body is not None

        assert f'worker="http://{targets["decode-0002"]["address"]}"' in body.decode()
        reading = vllm_router.router_reading(read_page(body, vllm_router.WANTED), at_s=20.0)
        assert reading.requests == 201


async def test_a_tier_may_be_without_a_router_page(session: aiohttp.ClientSession) -> None:
    async with SimulatedTierServer(tier(), router_page="none") as server:
        assert "router" not in await Client(session, server).targets()


# --- the clock


async def test_virtual_time_moves_only_when_told(client: Client) -> None:
    assert await client.call("GET", "/clock") == (
        200,
        {"now_s": 0.0, "mode": "lockstep", "finished": False},
    )
    assert (await client.advance(5))["now_s"] == 5.0
    assert (await client.call("GET", "/clock"))[1]["now_s"] == 5.0
    assert (await client.advance(200.0))["finished"] is True


@pytest.mark.parametrize(
    "body", ['{"seconds": -1}', '{"seconds": "5"}', '{"seconds": true}', "{}", "[]", "no", "NaN"]
)
async def test_a_step_that_is_no_number_of_seconds_is_refused(client: Client, body: str) -> None:
    status, answer = await client.call("POST", "/clock/advance", data=body)

    assert status == 400
    assert "expected 0 to" in answer["error"]
    assert client.server.tier.now_s == 0.0


class HandClock:
    """A real clock that a test moves by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(("speed", "virtual_s"), [(1.0, 12.5), (4.0, 50.0)])
async def test_in_wall_mode_virtual_time_follows_the_clock(
    session: aiohttp.ClientSession, speed: float, virtual_s: float
) -> None:
    clock = HandClock()
    async with SimulatedTierServer(tier(), mode="wall", speed=speed, clock=clock) as server:
        client = Client(session, server)
        clock.now_s += 12.5
        await server.catch_up()
        await server.catch_up()  # no time has passed since

        assert (await client.call("GET", "/clock"))[1] == {
            **{"now_s": virtual_s, "mode": "wall", "finished": server.tier.finished_replaying}
        }
        status, answer = await client.call("POST", "/clock/advance", json={"seconds": 5})
        assert (status, server.tier.now_s) == (409, virtual_s)
        assert "wall" in answer["error"]


async def test_the_follower_moves_time_by_itself(session: aiohttp.ClientSession) -> None:
    clock = HandClock()
    server = SimulatedTierServer(tier(), mode="wall", clock=clock)
    moved = notify_when_advanced(server.tier)
    async with server:
        clock.now_s += 2.0
        await moved()

        assert server.tier.now_s == 2.0
        assert server.healthy


def notify_when_advanced(
    simulated: SimulatedTier, *, then: Exception | None = None
) -> Callable[[], Any]:
    event, play = asyncio.Event(), simulated.advance

    def advance(seconds: float) -> None:
        play(seconds)
        event.set()
        if then is not None:
            raise then

    simulated.advance = advance  # type: ignore[method-assign]

    async def wait() -> None:
        await asyncio.wait_for(event.wait(), timeout=10.0)

    return wait


# --- faults


async def test_a_frozen_page_is_the_same_bytes_until_it_is_cleared(client: Client) -> None:
    await client.advance(10.0)
    before = await client.pages()
    await client.fault("frozen_page", "decode")
    await client.advance(5.0)
    frozen = await client.pages()
    await client.fault("clear", "decode")
    cleared = await client.pages()

    assert frozen["decode-0001"] == before["decode-0001"] != cleared["decode-0001"]
    assert frozen["prefill-0001"] == cleared["prefill-0001"] != before["prefill-0001"]


async def test_a_missing_page_refuses_and_comes_back_on_the_same_port(client: Client) -> None:
    before = await client.targets()
    await client.fault("missing_page", "prefill", replicas="every_second")
    missing = await client.pages()
    await client.fault("clear", "prefill")

    assert [missing[name] is None for name in ("prefill-0001", "prefill-0002")] == [False, True]
    assert await client.targets() == before
    assert await client.page(before["prefill-0002"]["address"]) is not None


async def test_a_late_page_is_an_earlier_one(client: Client) -> None:
    await client.fault("late_page", "decode", seconds=10.0)
    pages = []
    for _ in range(5):
        await client.advance(5.0)
        pages.append(output_tokens((await client.pages())["decode-0001"] or b""))
    await client.fault("clear", "decode")
    now = output_tokens((await client.pages())["decode-0001"] or b"")
    assert now is not None

    assert pages[0] == pages[1] == 0.0
    assert 0.0 < (pages[2] or 0.0) < (pages[3] or 0.0) < (pages[4] or 0.0) < now


async def test_a_killed_replica_s_port_refuses_and_its_successor_gets_another(
    client: Client,
) -> None:
    old = (await client.targets())["decode-0001"]["address"]
    await client.fault("kill", "decode", replicas="decode-0001")
    targets = await client.targets()

    assert "decode-0001" not in targets
    assert await client.page(old) is None
    assert targets["decode-0003"]["__meta_phasewise_state"] == "starting"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "object"),
        ({"kind": "explode", "pool": "decode"}, "frozen_page"),
        ({"kind": "kill", "pool": "encode"}, "decode, prefill"),
        ({"kind": "kill", "pool": "decode", "when": 3}, "unknown key"),
        ({"kind": "kill", "pool": "decode", "replicas": 3}, "text"),
        ({"kind": "slow_link", "pool": "decode", "factor": "a tenth"}, "a number"),
        ({"kind": "slow_link", "pool": "decode", "factor": 0}, "more than 0"),
        ({"kind": "kill", "pool": ["decode"]}, "fault.pool"),
    ],
)
async def test_a_fault_that_makes_no_sense_is_refused_with_words(
    client: Client, body: object, words: str
) -> None:
    status, answer = await client.call("POST", "/faults", json=body)

    assert status == 400
    assert words in answer["error"]


# --- the scale subresource


async def test_a_scale_is_an_autoscaling_v1_object(client: Client) -> None:
    assert await client.call("GET", SCALE.format("decode")) == (
        200,
        {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": "decode", "namespace": "default", "resourceVersion": "1"},
            "spec": {"replicas": 2},
            "status": {"replicas": 2, "selector": "pool=decode"},
        },
    )


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_a_write_sets_the_pool_s_target_absolutely(client: Client, method: str) -> None:
    for _ in range(2):
        status, scale = await client.call(
            method, SCALE.format("prefill"), json={"spec": {"replicas": 4}}
        )

    assert (status, scale["spec"], scale["status"]["replicas"]) == (200, {"replicas": 4}, 4)
    counts = client.server.tier.pool_counts("prefill")
    assert (counts.desired, counts.starting) == (4, 2)


async def test_a_write_of_an_older_version_is_a_conflict_and_changes_nothing(
    client: Client,
) -> None:
    _, old = await client.call("GET", SCALE.format("decode"))
    new = {**old, "spec": {"replicas": 3}}
    first, written = await client.call("PUT", SCALE.format("decode"), json=new)
    second, refusal = await client.call(
        "PUT", SCALE.format("decode"), json={**old, "spec": {"replicas": 9}}
    )

    assert (first, second) == (200, 409)
    assert (refusal["kind"], refusal["reason"]) == ("Status", "Conflict")
    assert client.server.tier.pool_counts("decode").desired == 3
    assert written["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]


async def test_a_change_of_size_makes_a_new_version_and_waiting_does_not(
    client: Client,
) -> None:
    async def version() -> str:
        _, scale = await client.call("GET", SCALE.format("decode"))
        return str(scale["metadata"]["resourceVersion"])

    before = await version()
    await client.advance(5.0)
    assert await version() == before

    await client.call("PUT", SCALE.format("decode"), json={"spec": {"replicas": 1}})
    assert await version() != before


@pytest.mark.parametrize(
    ("pool", "body", "status"),
    [
        ("encode", {"spec": {"replicas": 1}}, 404),
        ("decode", {"spec": {"replicas": -1}}, 422),
        ("decode", {"spec": {"replicas": 1.5}}, 422),
        ("decode", {"spec": {"replicas": True}}, 422),
        ("decode", {"spec": {}}, 422),
        ("decode", {"spec": 3}, 400),
        ("decode", [], 400),
    ],
)
async def test_a_write_that_makes_no_sense_is_refused(
    client: Client, pool: str, body: object, status: int
) -> None:
    answer = await client.call("PUT", SCALE.format(pool), json=body)

    assert (answer[0], answer[1]["kind"], answer[1]["code"]) == (status, "Status", status)
    assert client.server.tier.pool_counts("decode").desired == 2


# --- the rest


async def test_the_outcome_counts_every_request_once(client: Client) -> None:
    await client.advance(200.0)
    status, outcome = await client.call("GET", "/outcome?ttft_s=100&itl_s=10")

    assert status == 200
    assert outcome["requests"] == outcome["arrived_requests"] == outcome["finished_requests"] == 300
    assert (outcome["failed_requests"], outcome["good_requests"]) == (0, 300)
    ttft_s = outcome["ttft_s"]
    assert 0.0 < ttft_s["p50"] <= ttft_s["p95"] <= ttft_s["p99"] <= ttft_s["max"]
    assert outcome["replica_seconds"] == {"prefill": 400.0, "decode": 400.0}


async def test_an_outcome_before_the_first_token_has_no_latencies(client: Client) -> None:
    _, outcome = await client.call("GET", "/outcome")

    assert (outcome["ttft_s"], outcome["mean_itl_s"]) == (None, None)
    assert "good_requests" not in outcome


@pytest.mark.parametrize("query", ["ttft_s=1", "ttft_s=1&itl_s=fast"])
async def test_half_an_slo_is_refused(client: Client, query: str) -> None:
    assert (await client.call("GET", f"/outcome?{query}"))[0] == 400


async def test_health_and_unknown_paths(client: Client) -> None:
    address = (await client.targets())["decode-0001"]["address"]
    for url, status in (
        (f"{client.server.address}/healthz", 200),
        (f"http://{address}/health", 200),
        (f"http://{address}/v1/completions", 404),
    ):
        async with client.session.get(url) as answer:
            assert answer.status == status


async def test_a_taken_port_is_named(client: Client) -> None:
    port = int(client.server.address.rpartition(":")[2])

    with pytest.raises(Misconfigured, match=f"127.0.0.1:{port}"):
        await SimulatedTierServer(tier(), port=port).start()


async def test_what_stops_the_clock_is_told_at_the_end(session: aiohttp.ClientSession) -> None:
    simulated, clock = tier(), HandClock()
    server = SimulatedTierServer(simulated, mode="wall", clock=clock)
    moved = notify_when_advanced(simulated, then=ZeroDivisionError("the tier broke"))
    await server.start()
    clock.now_s += 1.0
    await moved()
    status, _ = await Client(session, server).text("/healthz")

    assert status == 500
    with pytest.raises(ZeroDivisionError, match="the tier broke"):
        await server.stop()


async def test_two_tiers_beside_each_other_share_no_port(session: aiohttp.ClientSession) -> None:
    async with SimulatedTierServer(tier()) as one, SimulatedTierServer(tier()) as other:
        addresses = [
            labels["address"]
            for server in (one, other)
            for labels in (await Client(session, server).targets()).values()
        ]

    assert len(set(addresses)) == 10


async def test_the_same_steps_give_the_same_pages(session: aiohttp.ClientSession) -> None:
    runs = []
    for _ in range(2):
        async with SimulatedTierServer(tier()) as server:
            client = Client(session, server)
            await client.advance(7.0)
            await client.fault("slow_link", "decode", factor=0.1)
            await client.advance(7.0)
            runs.append(await client.pages())

    assert runs[0] == runs[1]
