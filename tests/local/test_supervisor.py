"""The supervisor over real processes that look like engines."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from serving.local import keeper
from serving.local.events import EventKind
from serving.local.replica import LocalReplica
from serving.local.states import LocalState
from serving.local.supervisor import LocalTier
from serving.types import Phase, StartStage
from tests.local.fakes import IMPATIENT, PAIR, FakeLauncher, MakeTier, heard, pool, told, until


async def order(replica: LocalReplica, **what: object) -> None:
    """Tell a fake engine what to be."""
    async with aiohttp.ClientSession() as session:
        try:
            async with session.post(f"http://{replica.address}/fake", json=what) as answer:
                assert answer.status == 200
        except aiohttp.ClientError:
            assert "exit" in what


def of(tier: LocalTier, name: str) -> LocalReplica:
    return next(r for r in tier.replicas() if r.pool.name == name)


async def ask(tier: LocalTier, tokens: int = 1) -> int:
    assert tier.front is not None
    async with aiohttp.ClientSession() as session:
        body = {"model": "fake", "prompt": [1, 2], "max_tokens": tokens}
        async with session.post(f"http://{tier.front.address}/v1/completions", json=body) as answer:
            await answer.read()
            return answer.status


async def test_a_tier_comes_up_and_serves_through_its_router(make_tier: MakeTier) -> None:
    tier = await make_tier()
    await heard(tier, EventKind.SERVES)

    assert await ask(tier) == 200
    assert tier.pool_counts("prefill").ready == tier.pool_counts("decode").ready == 1
    assert tier.healthy


async def test_every_start_is_recorded_stage_by_stage(make_tier: MakeTier) -> None:
    tier = await make_tier()
    await heard(tier, EventKind.READY, 2)

    assert {record.pool: record.failed for record in tier.startups()} == {
        "prefill": False,
        "decode": False,
    }
    for record in tier.startups():
        stages = dict(record.stages)
        assert StartStage.WEIGHTS in stages
        assert StartStage.READY in stages
        assert record.ended_s is not None
        assert sum(stages.values()) == pytest.approx(record.ended_s - record.asked_s)
    assert sorted(str(record.cold) for record in tier.startups()) == ["False", "True"]


async def test_a_killed_engine_is_stated_with_what_was_lost_and_replaced(
    make_tier: MakeTier,
) -> None:
    tier = await make_tier()
    await heard(tier, EventKind.SERVES)
    decode = of(tier, "decode")
    await order(decode, running=7, waiting=3, kv=0.5)
    await until(lambda: decode.figures.requests == 10, "its page was not read")
    assert decode.child is not None
    os.kill(decode.child.pid, signal.SIGKILL)
    (lost,) = await heard(tier, EventKind.LOST)

    assert (lost.replica, lost.pool) == ("decode-0001", "decode")
    assert (lost.lost_requests, lost.lost_kv_tokens) == (10, 5120)
    assert "signal 9" in lost.words
    await heard(tier, EventKind.READY, 3)
    assert of(tier, "decode").name == "decode-0002"
    await until(lambda: tier.front and tier.front.registrar.forgotten(decode.address), "told of")
    assert await ask(tier) == 200


async def test_what_the_router_still_sends_to_a_dead_engine_is_answered_by_another(
    make_tier: MakeTier,
) -> None:
    pools = (pool("prefill", Phase.PREFILL), pool("decode", Phase.DECODE, 2))
    tier = await make_tier(pools=pools, launcher=FakeLauncher(forgets_s=6.0))
    await heard(tier, EventKind.READY, 3)
    await heard(tier, EventKind.SERVES)
    dead = of(tier, "decode")
    assert dead.child is not None
    os.kill(dead.child.pid, signal.SIGKILL)
    await heard(tier, EventKind.LOST)
    statuses: list[int] = []

    async def asked() -> bool:
        statuses.append(await ask(tier))
        return statuses[-4:] == [200] * 4

    while not await asked():  # until its port is taken over
        assert len(statuses) < 100
    front = tier.front
    assert front is not None
    assert not front.registrar.forgotten(dead.address)
    await heard(tier, EventKind.STOOD_IN)


async def test_what_comes_to_the_only_engine_of_a_pool_waits_for_the_one_that_replaces_it(
    make_tier: MakeTier,
) -> None:
    tier = await make_tier(launcher=FakeLauncher(forgets_s=60.0))
    await heard(tier, EventKind.SERVES)
    dead = of(tier, "decode")
    assert dead.child is not None
    os.kill(dead.child.pid, signal.SIGKILL)
    await heard(tier, EventKind.LOST)

    while await ask(tier) != 200:  # refused until its port is taken over, then held
        assert tier.pool_counts("decode").ready == 0
    assert of(tier, "decode").name == "decode-0002"


async def test_an_engine_that_hangs_is_stated_and_replaced(make_tier: MakeTier) -> None:
    tier = await make_tier(timing=IMPATIENT)
    await heard(tier, EventKind.SERVES)
    await order(of(tier, "prefill"), hung=True)

    await heard(tier, EventKind.SILENT)
    await heard(tier, EventKind.HUNG)
    (lost,) = await heard(tier, EventKind.LOST)
    assert "has not answered" in lost.words
    await heard(tier, EventKind.READY, 3)


async def test_starts_that_fail_are_tried_again_and_given_up_in_the_end(
    make_tier: MakeTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.local.states.FIRST_WAIT_S", 0.01)
    launcher = FakeLauncher(engine_options={"decode": ["--crash"]})
    tier = await make_tier(launcher=launcher)
    (words,) = (event.words for event in await heard(tier, EventKind.GIVEN_UP))

    assert "5 failed starts" in words
    failed = told(tier, EventKind.FAILED_START)
    assert len(failed) == 5
    assert "no such model" in failed[0].words
    assert tier.pool_counts("decode").starting == 0

    launcher.engine_options = {}
    tier.scale("decode", 1)
    await heard(tier, EventKind.SERVES)


async def test_a_scaled_pool_grows_and_shrinks_again(make_tier: MakeTier) -> None:
    tier = await make_tier()
    await heard(tier, EventKind.SERVES)
    tier.scale("decode", 2)
    await heard(tier, EventKind.READY, 3)
    tier.scale("decode", 1)
    (ended,) = await heard(tier, EventKind.ENDED)

    assert ended.words.endswith("drained")
    assert tier.pool_counts("decode").ready == 1


async def test_a_start_that_still_waits_for_its_weights_can_be_called_off(
    make_tier: MakeTier,
) -> None:
    launcher = FakeLauncher()
    tier = await make_tier(launcher=launcher)
    await heard(tier, EventKind.SERVES)
    launcher.may_fetch.clear()
    tier.scale("decode", 2)
    await heard(tier, EventKind.STARTED, 3)
    await until(lambda: len(launcher.fetched) == 3, "it fetches")
    tier.scale("decode", 1)
    await until(lambda: len(tier.replicas()) == 2, "the start is given up")
    launcher.may_fetch.set()
    await tier.stop()

    assert keeper.processes_of(tier._state.run) == ()
    assert len(told(tier, EventKind.READY)) == 2


async def test_no_pool_grows_beyond_its_most(make_tier: MakeTier) -> None:
    tier = await make_tier()
    await heard(tier, EventKind.SERVES)
    tier.scale("decode", 40)
    (scaled,) = told(tier, EventKind.SCALED)
    await until(lambda: len(tier.replicas()) == 5, "four decode replicas")

    assert "allows it 4" in scaled.words


async def test_a_flip_loses_no_request(make_tier: MakeTier) -> None:
    pools = (pool("prefill", Phase.PREFILL), pool("decode", Phase.DECODE, 2))
    launcher = FakeLauncher(
        engine_options={
            "decode": ["--token-seconds", "0.05"],
            "prefill": ["--token-seconds", "0.1"],
        }
    )
    tier = await make_tier(pools=pools, launcher=launcher)
    await heard(tier, EventKind.READY, 3)
    await heard(tier, EventKind.SERVES)
    flipped = asyncio.Event()

    async def load() -> list[int]:
        found = []
        while not flipped.is_set():
            found.append(await ask(tier, 8))
        return found

    loads = [asyncio.create_task(load()) for _ in range(6)]
    tier.scale("decode", 1)
    tier.scale("prefill", 2)
    (event,) = await heard(tier, EventKind.FLIPPED)
    await ask(tier, 8)
    flipped.set()
    answers = [status for done in await asyncio.gather(*loads) for status in done]

    assert (event.replica, event.pool) == ("prefill-0002", "prefill")
    assert set(answers) == {200}
    assert [tier.pool_counts(p).ready for p in ("prefill", "decode")] == [2, 1]
    assert len(told(tier, EventKind.STARTED)) == 3


async def test_a_drain_waits_for_kv_that_decode_has_not_fetched(make_tier: MakeTier) -> None:
    pools = (pool("prefill", Phase.PREFILL, 2), pool("decode", Phase.DECODE))
    tier = await make_tier(pools=pools)
    await heard(tier, EventKind.SERVES)
    await heard(tier, EventKind.READY, 3)
    for replica in tier.replicas():
        await order(replica, kv=0.3)
    await until(
        lambda: all(r.figures.kv_ratio == 0.3 for r in tier.replicas()), "pages were not read"
    )
    tier.scale("prefill", 1)
    await until(lambda: tier.pool_counts("prefill").draining, "a drain")
    (draining,) = (r for r in tier.replicas() if r.state is LocalState.DRAINING)
    front = tier.front
    assert front is not None
    await until(lambda: front.registrar.forgotten(draining.address), "the router forgets")
    (ended,) = await heard(tier, EventKind.ENDED)

    began = next(e.at_s for e in tier.events if e.kind is EventKind.DRAINING)
    assert ended.at_s - began >= 1.0  # the lease


async def test_a_router_that_dies_comes_back_and_what_came_meanwhile_is_answered(
    make_tier: MakeTier,
) -> None:
    tier = await make_tier()
    await heard(tier, EventKind.SERVES)
    front = tier.front
    assert front is not None
    for deaths in (1, 2):
        assert front.child is not None
        os.kill(front.child.pid, signal.SIGKILL)
        lost = await heard(tier, EventKind.ROUTER_LOST, deaths)
        assert "starts again" in lost[-1].words
        assert not front.ready

        assert await ask(tier) == 200
        await heard(tier, EventKind.ROUTER_READY, deaths + 1)
    assert len(tier.replicas()) == 2


async def test_stop_leaves_no_process_and_no_file(tmp_path: Path, make_tier: MakeTier) -> None:
    tier = await make_tier()
    await heard(tier, EventKind.SERVES)
    pids = [pid for r in tier.replicas() if r.child for pid in r.child.members()]
    run = tier._state.run
    temporary = Path(tier._state.temporary)
    assert temporary.is_dir()
    assert len(keeper.processes_of(run)) >= 3
    await tier.stop()

    assert len(pids) == 2
    assert keeper.processes_of(run) == ()
    assert not temporary.exists()
    assert not (tmp_path / "state.json").exists()


async def test_a_tier_without_a_router_serves_each_engine_by_itself(make_tier: MakeTier) -> None:
    tier = await make_tier(
        pools=(pool("both", Phase.BOTH),), launcher=FakeLauncher(has_router=False)
    )
    await heard(tier, EventKind.READY)

    assert tier.front is None
    tier.scale("both", 0)
    await heard(tier, EventKind.ENDED)


def test_the_pair_of_the_tests_is_one_of_each() -> None:
    found: dict[str, Any] = {p.name: p.initial for p in PAIR}
    assert found == {"prefill": 1, "decode": 1}
