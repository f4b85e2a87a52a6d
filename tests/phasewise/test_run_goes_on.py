"""`phasewise run` goes on through looks and records that fail in a way that nobody foresaw."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from autoscaler.ledger import Ledger
from collector import observe
from phasewise.recording import LedgerRecorder
from phasewise.running import run_all
from phasewise.settings import load_settings
from phasewise.tier_setup import simulation_plan
from serving.schema.tier import demo_tier_path, load_tier
from serving.simulation.server import SimulatedTierServer
from serving.simulation.tier import SimulatedTier
from serving.simulation.traffic import Request


@pytest.mark.parametrize("failing", [range(4, 6), range(1, 31)], ids=["some-looks", "every-look"])
async def test_a_look_that_fails_costs_what_it_would_have_told(
    failing: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    real = observe.step

    def step(*args: object, **kwargs: object) -> object:
        nonlocal looks
        looks += 1
        if looks in failing:
            raise OverflowError("nobody foresaw this")
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("phasewise.http_tier.step", step)
    ledger = await run(tmp_path)
    seen = [one for tick in ledger.ticks() for one in tick.observations]
    ledger.close()

    assert len(seen) == looks == 30
    for index, observation in enumerate(seen, start=1):
        failed = "the look failed: OverflowError: nobody foresaw this"
        assert (failed in observation.problems) == (index in failing)
        assert (observation.pools == ()) == (index in failing)


async def test_a_record_that_fails_costs_its_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    real = LedgerRecorder.record

    def record(self: LedgerRecorder, *args: object) -> None:
        nonlocal calls
        calls += 1
        if calls in (3, 4):
            raise OSError(28, "no space left on device")
        real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(LedgerRecorder, "record", record)
    ledger = await run(tmp_path)
    ticks = [(tick.epoch, tick.at_s) for tick in ledger.ticks()]
    ledger.close()

    assert ticks == [(n + 1, 15.0 * k) for n, k in enumerate([1, 2, 5, 6, 7, 8, 9, 10])]


async def test_a_plan_that_cannot_be_published_is_still_recorded(tmp_path: Path) -> None:
    (tmp_path / "phasewise.sqlite.plan.json").mkdir()  # nothing can replace a folder
    ledger = await run(tmp_path)
    epochs = [tick.epoch for tick in ledger.ticks()]
    ledger.close()

    assert epochs == list(range(1, 11))


async def run(folder: Path) -> Ledger:
    """150 s of a small tier under `phasewise run`; the ledger that is left."""
    traffic = [Request(i / 4, 900, 40) for i in range(4 * 200)]
    plan = simulation_plan(load_tier(demo_tier_path()), {"prefill": 2, "decode": 2})
    async with SimulatedTierServer(SimulatedTier(plan, traffic, seed=1)) as server:
        document = {
            "tiers": [{"file": str(demo_tier_path()), "mode": "act"}],
            "source": {"httpSd": f"{server.address}/sd"},
            "clock": {"kind": "lockstep", "url": server.address},
            "actuator": {"kind": "scale-endpoint", "url": server.address},
            "console": {"port": 0},
        }
        (folder / "phasewise.yaml").write_text(yaml.safe_dump(document))
        await run_all(load_settings(folder / "phasewise.yaml"), until_s=150.0, speed=None)
    return Ledger(folder / "phasewise.sqlite", read_only=True)
