"""Weights take 145 s when cold, 2 s when warm: the lead is that of the kind that comes next."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.learn import learn
from autoscaler.plan import plan
from autoscaler.state import LearnedState, new_state
from autoscaler.types import Lead
from collector.discovery import discover
from collector.scrape import Scraper
from phasewise.direct import DirectTier
from phasewise.tier_setup import simulation_plan, tier_settings
from serving.schema.tier import demo_tier_path, load_tier
from serving.simulation.server import SimulatedTierServer
from serving.simulation.tier import SimulatedTier
from serving.types import ReplicaState, StartKind, StartStage

COLD_S, WARM_S = 180.0, 37.0
DEMO = load_tier(demo_tier_path())
SETTINGS = tier_settings(DEMO)


def stages(weights_s: float) -> dict[StartStage, float]:
    known = {
        StartStage.PROCESS: 10.0,
        StartStage.WEIGHTS: weights_s,
        StartStage.COMPILE: 20.0,
        StartStage.READY: 5.0,
    }
    return {stage: known.get(stage, 0.0) for stage in StartStage}


def simulated() -> SimulatedTier:
    made = simulation_plan(DEMO, {"prefill": 1, "decode": 1})
    pools = tuple(
        replace(
            pool,
            start_s=None,
            profile=replace(pool.profile, start_cold_s=stages(145.0), start_warm_s=stages(2.0)),
        )
        for pool in made.pools
    )
    return SimulatedTier(replace(made, pools=pools), [], seed=1)


class Played:
    """The tier and what was learned of it, look by look."""

    def __init__(self) -> None:
        self.tier = simulated()
        self.direct = DirectTier(self.tier, SETTINGS, until_s=1e9)
        self.state: LearnedState = new_state(SETTINGS)

    async def until(self, at_s: float) -> None:
        while self.tier.now_s < at_s:
            now_s = await self.direct.next_scrape()
            assert now_s is not None
            self.state = learn(self.state, await self.direct.observe(now_s), SETTINGS)

    def lead(self) -> Lead:
        states = {known.state.pool: known.state for known in self.state.pools if known.state}
        made = plan(self.state, states, SETTINGS, now_s=self.tier.now_s)
        (found,) = (d.lead for d in made.decisions if d.pool.name == "decode")
        assert found is not None
        return found


async def test_the_lead_is_that_of_the_kind_of_start_that_comes_next() -> None:
    played = Played()
    await played.until(10.0)
    played.tier.scale("decode", 8)
    await played.until(400.0)
    cold = played.lead()
    played.tier.scale("decode", 1)
    await played.until(500.0)
    after_drain = played.lead()
    played.tier.scale("decode", 7)
    await played.until(600.0)
    one_node_left = played.lead()
    await played.until(1200.0)
    nodes_gone = played.lead()

    assert (cold.counted, cold.p50_s, cold.p95_s) == (StartKind.COLD, COLD_S, COLD_S)
    # no warm start seen yet: what was stated counts
    assert (after_drain.counted, after_drain.p95_s) == (StartKind.WARM, 120.0)
    # a warm start ends between two looks, which are 5 s apart
    assert (one_node_left.counted, one_node_left.p50_s) == (StartKind.WARM, 40.0)
    assert (nodes_gone.counted, nodes_gone.p50_s) == (StartKind.COLD, COLD_S)
    weights = {k.kind: dict(k.stages_s)[StartStage.WEIGHTS] for k in nodes_gone.kinds}
    assert weights == {StartKind.COLD: 145.0, StartKind.WARM: 2.0}
    assert [k.starts for k in nodes_gone.kinds] == [7, 6]


async def test_the_list_of_the_simulated_tier_says_how_replicas_start() -> None:
    tier = simulated()
    async with SimulatedTierServer(tier) as server, Scraper() as scraper:
        tier.scale("decode", 2)
        await server.advance(5.0)
        begun = await discover(scraper, f"{server.address}/sd")
        await server.advance(COLD_S)
        ended = await discover(scraper, f"{server.address}/sd")

    (starting,) = (m for m in begun.members.values() if m.state is ReplicaState.STARTING)
    assert (starting.start_kind, starting.start_stages) == (StartKind.COLD, ())
    assert {m.next_start for m in begun.members.values()} == {StartKind.COLD}
    (started,) = (m for m in ended.members.values() if m.start_kind is not None)
    assert dict(started.start_stages)[StartStage.WEIGHTS] == 145.0


def test_where_one_time_is_stated_for_all_starts_there_are_no_kinds() -> None:
    made = simulation_plan(DEMO, {"prefill": 1, "decode": 1})
    tier = SimulatedTier(made, [], seed=1)
    tier.scale("decode", 2)
    tier.advance(200.0)

    assert {r.start_kind for r in tier.replicas()} == {None}
    assert {r.start_stages for r in tier.replicas()} == {()}
    assert tier.next_start("decode") is None
