"""A list of replicas that contradicts the scale targets: its pools hold, and are not read as idle.

The list is http_sd's, over real sockets; pages and scale endpoints answer all the time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import lru_cache
from typing import Any

import aiohttp
import pytest

from autoscaler.loop import Loop
from autoscaler.scale_client import ScaleClient
from autoscaler.tick import Phasewise
from autoscaler.types import Reason
from collector.derive import MEASUREMENTS
from collector.observe import ObserverSettings
from collector.scrape import Scraper
from phasewise.http_tier import HttpTier, LockstepClock
from phasewise.tier_setup import simulation_plan, tier_settings
from serving.errors import Unavailable
from serving.schema.tier import Tier, demo_tier_path, load_tier
from serving.simulation.server import SimulatedTierServer
from serving.simulation.tier import SimulatedTier
from tests.scenarios.playing import Played, quick_start, traffic

BEGINS_S, UNTIL_S = 345.0, 705.0
SIZES = {"prefill": 4, "decode": 4}
REQUESTS = traffic([(UNTIL_S, 8.5, 8.5)], input_tokens=2100, output_tokens=280)
Groups = list[dict[str, Any]]


def nothing(groups: Groups) -> Groups:
    return []


def only_the_router(groups: Groups) -> Groups:
    return [group for group in groups if group["labels"]["job"] == "router"]


def no_router(groups: Groups) -> Groups:
    return [group for group in groups if group["labels"]["job"] != "router"]


def no_prefill(groups: Groups) -> Groups:
    return [group for group in groups if group["labels"].get("pool") != "prefill"]


def prefill_under_another_name(groups: Groups) -> Groups:
    for group in groups:
        if group["labels"].get("pool") == "prefill":
            group["labels"] |= {"pool": "old", "__meta_phasewise_pool": "old"}
    return groups


class Lister(Scraper):
    """A scraper that sees the list of replicas falsified for a while, by virtual time."""

    def __init__(self, falsify: Callable[[Groups], Groups], ends_s: float) -> None:
        super().__init__()
        self._falsify = falsify
        self._ends_s = ends_s
        self.now_s = 0.0

    async def fetch(self, url: str) -> bytes | Unavailable:
        page = await super().fetch(url)
        if url.endswith("/sd") and BEGINS_S <= self.now_s < self._ends_s:
            assert isinstance(page, bytes)
            return json.dumps(self._falsify(json.loads(page))).encode()
        return page


class Told:
    """A lockstep clock that tells the lister what time it is."""

    def __init__(self, clock: LockstepClock, lister: Lister) -> None:
        self._clock = clock
        self._lister = lister

    async def next_scrape(self) -> float | None:
        now_s = await self._clock.next_scrape()
        self._lister.now_s = now_s or 0.0
        return now_s


@lru_cache(maxsize=1)
def demo_tier() -> Tier:
    return quick_start(load_tier(demo_tier_path()), seconds=60.0)


async def play(falsify: Callable[[Groups], Groups], ends_s: float) -> Played:
    settings = tier_settings(demo_tier(), tick_s=15.0)
    simulated = SimulatedTier(simulation_plan(demo_tier(), SIZES), REQUESTS, seed=1)
    policy, played = Phasewise(settings), Played()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(SimulatedTierServer(simulated, router_page="epp"))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        lister = await stack.enter_async_context(Lister(falsify, ends_s))
        source = HttpTier(
            settings,
            discovery_url=f"{server.address}/sd",
            scraper=lister,
            scale=ScaleClient(session, base_url=server.address),
            observer=ObserverSettings(),
        )
        clock = LockstepClock(session, base_url=server.address, until_s=UNTIL_S)
        loop = Loop(
            policy=policy,
            clock=Told(clock, lister),
            source=source,
            actuator=source,
            scrapes_per_tick=3,
            on_tick=played.note,
        )
        played.state = await loop.run(policy.start())
    return played


@pytest.mark.parametrize(
    ("falsify", "blind", "lasts_s"),
    [
        pytest.param(nothing, ("prefill", "decode"), 300.0, id="empty"),
        pytest.param(nothing, ("prefill", "decode"), 30.0, id="empty-for-a-while"),
        pytest.param(only_the_router, ("prefill", "decode"), 300.0, id="only-the-router"),
        pytest.param(no_prefill, ("prefill",), 300.0, id="no-prefill"),
        pytest.param(prefill_under_another_name, ("prefill",), 300.0, id="prefill-renamed"),
        pytest.param(no_router, (), 300.0, id="no-router"),
    ],
)
def test_a_list_that_contradicts_the_scale_targets_changes_no_loaded_pool(
    falsify: Callable[[Groups], Groups], blind: tuple[str, ...], lasts_s: float
) -> None:
    ends_s = BEGINS_S + lasts_s
    played = asyncio.run(play(falsify, ends_s))

    for pool, size in SIZES.items():
        assert played.desired(pool, to_s=BEGINS_S - 15.0)[-1] == size
        assert set(played.desired(pool, from_s=BEGINS_S - 15.0)) == {size}
        wanted = [d.wanted_replicas for d in played.decisions(pool, from_s=BEGINS_S - 15.0)]
        assert all(number in (None, size) for number in wanted)  # nor a jump afterwards

    for observation in (seen for tick in played.observations for seen in tick):
        during = BEGINS_S <= observation.at_s < ends_s
        for state, sample in zip(observation.pools, observation.samples, strict=True):
            lost = during and state.pool.name in blind
            told = "the list names no replica of a pool that is asked to have 4"
            counts = (state.ready_replicas, state.starting_replicas, state.draining_replicas)
            assert counts == ((None, None, None) if lost else (4, 0, 0))
            assert (told in sample.problems) == lost
            assert not (lost and any(getattr(sample, n).value is not None for n in MEASUREMENTS))
        if during and falsify in (nothing, no_router):
            assert observation.router is not None
            assert "names no router any more" in observation.router.problems[0]

    for pool in SIZES:
        held = played.decisions(pool, from_s=BEGINS_S + 90.0, to_s=ends_s - 15.0)
        reasons = {decision.reason for decision in held}
        if pool in blind:
            assert reasons <= {Reason.DEMAND_UNKNOWN, Reason.COVERAGE_LOW, Reason.WITHIN_NEED}
        else:
            assert reasons <= {Reason.WITHIN_NEED}
