"""The loop dies at any instant, the tier lives on, and the loop comes back from its ledger."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import aiohttp
import pytest
import yaml

from autoscaler.codec import state_hash
from autoscaler.ledger import Ledger
from autoscaler.loop import Loop
from autoscaler.replay import replay, resume
from autoscaler.state import LearnedState
from autoscaler.tick import Phasewise
from autoscaler.types import Plan, Reason
from phasewise.direct import DirectTier
from phasewise.live import start_tier
from phasewise.replaying import replay_file
from phasewise.settings import Settings
from phasewise.tier_setup import simulation_plan, tier_settings
from serving.schema.tier import Tier, demo_tier_path, load_tier
from serving.simulation.tier import SimulatedTier
from serving.types import Observation, PoolId
from tests.scenarios.playing import SCRAPES_PER_TICK, Played, play_directly, trace_text, traffic

ALONE_S, UNTIL_S = 60.0, 720.0
SIZES = {"prefill": 2, "decode": 2}
REQUESTS = traffic(
    [
        (150.0, 3.0, 3.0),
        (90.0, 3.0, 5.0),
        (150.0, 5.0, 5.0),
        (60.0, 5.0, 3.2),
        (UNTIL_S - 450.0, 3.2, 3.2),
    ],
    input_tokens=2600,
    output_tokens=260,
)


@lru_cache(maxsize=1)
def demo_tier() -> Tier:
    return load_tier(demo_tier_path())


# the load falls to a third while the loop is dead: the one case where more than one replica may
# be between the two, since a gap is no evidence and the down window begins anew
STEEP = traffic(
    [(300.0, 5.0, 5.0), (30.0, 5.0, 5.0 / 3), (UNTIL_S - 330.0, 5.0 / 3, 5.0 / 3)],
    input_tokens=2600,
    output_tokens=260,
)


@lru_cache(maxsize=1)
def never_killed() -> Played:
    return play_directly(demo_tier(), REQUESTS, SIZES, until_s=UNTIL_S)


def differ_by_at_most_one(plans: Sequence[Plan], *, restarted_s: float) -> None:
    """Once three ticks have passed, no pool is asked to be more than one replica away."""
    late = [plan for plan in plans if plan.at_s > restarted_s][3:]
    assert late
    for plan in late:
        expected = never_killed().sizes_at(plan.at_s)
        for decision in plan.decisions:
            wanted = expected[decision.pool.name]
            assert decision.replicas is not None
            assert wanted is not None
            assert abs(decision.replicas - wanted) <= 1, (plan.at_s, decision.pool.name)


def test_the_load_moves_both_pools() -> None:
    for pool in SIZES:
        sizes = never_killed().desired(pool)
        assert sizes[0] < max(sizes) > sizes[-1]


# ---- in this process: exactly between two lines

Moment = Literal["before it is written", "before it is acted on", "after it is acted on"]


class Killed(Exception):
    """Stands for the end of the process at this line."""


class Mortal:
    """Recorder and actuator of a process that ends at one moment of one tick."""

    def __init__(self, direct: DirectTier, ledger: Ledger, *, epoch: int, moment: Moment) -> None:
        self._direct = direct
        self._ledger = ledger
        self._epoch = epoch
        self._moment = moment

    def _die(self, epoch: int, moment: Moment) -> None:
        if epoch == self._epoch and moment == self._moment:
            raise Killed

    def record(self, observations: Sequence[Observation], plan: Plan, state: Any) -> None:
        self._die(plan.epoch, "before it is written")
        settings = tier_settings(demo_tier())
        self._ledger.append(observations, plan, state, settings, version="test")
        self._die(plan.epoch, "before it is acted on")

    async def scale(self, pool: PoolId, replicas: int, *, epoch: int) -> None:
        await self._direct.scale(pool, replicas, epoch=epoch)

    def on_tick(self, plan: Plan, _: tuple[Observation, ...]) -> None:
        self._die(plan.epoch, "after it is acted on")


def lifetime(simulated: SimulatedTier, file: Path, *, epoch: int, moment: Moment) -> Played:
    """One process's life: from what the ledger holds, to its death or the end of the trace."""
    settings = tier_settings(demo_tier())
    ledger, played = Ledger(file), Played()
    direct = DirectTier(simulated, settings, until_s=UNTIL_S)
    mortal = Mortal(direct, ledger, epoch=epoch, moment=moment)
    state = resume(ledger, settings)
    ledger.begin(state, settings, version="test")

    def note(plan: Plan, observations: tuple[Observation, ...]) -> None:
        played.note(plan, observations)
        mortal.on_tick(plan, observations)

    loop = Loop(
        policy=Phasewise(settings),
        clock=direct,
        source=direct,
        actuator=mortal,
        scrapes_per_tick=SCRAPES_PER_TICK,
        recorder=mortal,
        on_tick=note,
    )
    try:
        asyncio.run(loop.run(state))
    finally:
        ledger.close()
    return played


@pytest.mark.parametrize(
    ("epoch", "moment"),
    [
        (1, "before it is written"),
        (2, "before it is acted on"),
        (14, "before it is acted on"),
        (17, "after it is acted on"),
        (18, "before it is written"),
        (22, "before it is acted on"),
        (33, "after it is acted on"),
    ],
)
def test_a_loop_that_died_at_any_line_goes_on_where_it_was(
    tmp_path: Path, epoch: int, moment: Moment
) -> None:
    file = tmp_path / "run.sqlite"
    simulated = SimulatedTier(simulation_plan(demo_tier(), SIZES), REQUESTS, seed=1)
    with pytest.raises(Killed):
        lifetime(simulated, file, epoch=epoch, moment=moment)
    finished = epoch - 1 if moment == "before it is written" else epoch
    restarted_s = simulated.now_s + ALONE_S
    simulated.advance(ALONE_S)

    after = lifetime(simulated, file, epoch=0, moment=moment)

    assert after.plans[0].epoch == finished + 1
    differ_by_at_most_one(after.plans, restarted_s=restarted_s)
    held_together(file, [*range(1, finished + 1), *(plan.epoch for plan in after.plans)])


def test_after_a_fall_that_it_did_not_see_it_holds_for_a_down_window_and_then_follows(
    tmp_path: Path,
) -> None:
    file = tmp_path / "run.sqlite"
    sizes = {"prefill": 4, "decode": 3}
    simulated = SimulatedTier(simulation_plan(demo_tier(), sizes), STEEP, seed=1)
    with pytest.raises(Killed):
        lifetime(simulated, file, epoch=20, moment="after it is acted on")
    simulated.advance(ALONE_S)
    restarted_s = simulated.now_s

    after = lifetime(simulated, file, epoch=0, moment="after it is acted on")
    calm = play_directly(demo_tier(), STEEP, sizes, until_s=UNTIL_S)
    window_s = max(p.lead.p95_s for p in resume_state(file).pools)

    for pool in sizes:
        before = calm.desired(pool, to_s=300.0)[-1]
        held = after.decisions(pool, to_s=restarted_s + window_s - 15.0)
        assert {d.replicas for d in held} == {before}
        assert held[-1].reason is Reason.SCALE_DOWN_STABILIZED
        assert "ticks that it takes" in held[-1].words
        assert after.desired(pool)[-1] == calm.desired(pool)[-1] < before
    held_together(file, list(range(1, 20 + len(after.plans) + 1)))


def resume_state(file: Path) -> LearnedState:
    ledger = Ledger(file, read_only=True)
    state = resume(ledger, tier_settings(demo_tier()))
    ledger.close()
    return state


def held_together(file: Path, epochs: list[int]) -> None:
    """The ledger holds every finished tick once, and replays clean across the restart."""
    ledger = Ledger(file, read_only=True)
    ticks = list(ledger.ticks())
    differences = [tick for tick in replay(ledger) if tick.differences]
    state = resume(ledger, tier_settings(demo_tier()))
    ledger.close()
    assert [tick.epoch for tick in ticks] == epochs == list(range(1, len(epochs) + 1))
    assert [tick.at_s for tick in ticks] == sorted({tick.at_s for tick in ticks})
    assert differences == []
    assert state_hash(state) == ticks[-1].state_hash


# ---- the real thing: processes, sockets, SIGKILL


class RunProcess:
    """`phasewise run`, and the decisions that it logs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[str] = []

    @classmethod
    async def start(cls, config: Path) -> RunProcess:
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "phasewise", "run"),
                *("-c", str(config), "--until", str(UNTIL_S)),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        )

    async def read(self, *, up_to_s: float) -> None:
        """Read its log until it has decided at a time, or to its end."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.said.append(line.decode())
            if line.startswith(b"{"):
                event = json.loads(line)
                if event["event"] == "decided" and event["at_s"] >= up_to_s:
                    return

    async def end(self) -> int:
        """Kill it if it lives; wait until it is gone."""
        if self.process.returncode is None:
            self.process.kill()
        await self.read(up_to_s=float("inf"))
        return await self.process.wait()


def settings_file(folder: Path, *, control: str, http_sd: str) -> Path:
    (folder / "tier.yaml").write_text(demo_tier_path().read_text())
    document: dict[str, Any] = {
        "tiers": [{"file": "tier.yaml", "mode": "act"}],
        "source": {"httpSd": http_sd},
        "clock": {"kind": "lockstep", "url": control},
        "actuator": {"kind": "scale-endpoint", "url": control},
        "ledger": {"file": "run.sqlite"},
    }
    if "console" in Settings.model_fields:
        document["console"] = {"enabled": False}
    file = folder / "phasewise.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


async def killed_in_the_middle(folder: Path, *, at_s: float) -> tuple[list[Plan], float]:
    """The plans of both lives, and when the second began."""
    trace = folder / "trace.csv"
    trace.write_text(trace_text(REQUESTS))
    initial = ",".join(f"{name}={number}" for name, number in SIZES.items())
    async with AsyncExitStack() as stack:
        tier = await start_tier(
            [
                *("--tier", str(demo_tier_path()), "--trace", str(trace), "--volume", "1"),
                *("--seed", "1", "--lockstep", "--initial", initial),
            ]
        )
        stack.push_async_callback(tier.stop)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        config = settings_file(folder, control=tier.control, http_sd=tier.http_sd)

        first = await RunProcess.start(config)
        stack.push_async_callback(first.end)
        await first.read(up_to_s=at_s)
        assert await first.end() == -9, first.said[-3:]
        body = {"seconds": ALONE_S}
        async with session.post(f"{tier.control}/clock/advance", json=body) as answer:
            restarted_s = float((await answer.json())["now_s"])

        second = await RunProcess.start(config)
        stack.push_async_callback(second.end)
        await second.read(up_to_s=float("inf"))
        assert await second.process.wait() == 0, second.said[-3:]
    ledger = Ledger(folder / "run.sqlite", read_only=True)
    plans = [tick.plan for tick in ledger.ticks()]
    ledger.close()
    return plans, restarted_s


def test_a_killed_run_comes_back_from_its_ledger(tmp_path: Path) -> None:
    at_s = 300.0
    plans, restarted_s = asyncio.run(killed_in_the_middle(tmp_path, at_s=at_s))
    before = [plan for plan in plans if plan.at_s <= restarted_s - ALONE_S]

    # it was killed in the middle: ticks before and after, and none while it was dead
    assert at_s <= before[-1].at_s < restarted_s < UNTIL_S - 60.0
    assert all(plan.at_s > restarted_s for plan in plans[len(before) :])
    assert [plan.decisions for plan in before[:-1]] == [
        plan.decisions for plan in never_killed().plans[: len(before) - 1]
    ]
    differ_by_at_most_one(plans, restarted_s=restarted_s)
    held_together(tmp_path / "run.sqlite", [plan.epoch for plan in plans])
    said: list[str] = []
    assert replay_file(tmp_path / "run.sqlite", said.append) == 0
    assert said[-1].endswith(f"{len(plans)} ticks replayed, 0 come out otherwise")
