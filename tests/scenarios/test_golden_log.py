"""A small scenario's whole decision log, as it was when somebody last looked at it.

A change of the log is no fault, but it must be seen: `PHASEWISE_UPDATE_GOLDEN=1` writes it anew,
and the difference is then part of the change.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serving.schema.tier import demo_tier_path, load_tier
from serving.simulation.faults import Fault, FaultKind
from serving.simulation.traffic import Request
from tests.scenarios.playing import Played, play_directly, quick_start, traffic

GOLDEN = Path(__file__).parent / "golden"
UNTIL_S = 720.0

SCENARIOS: dict[str, tuple[list[Request], list[tuple[float, Fault]]]] = {
    "rise-and-fall": (
        traffic(
            [(210.0, 3.0, 3.0), (60.0, 3.0, 5.0), (120.0, 5.0, 5.0), (330.0, 1.8, 1.8)],
            input_tokens=2500,
            output_tokens=260,
        ),
        [],
    ),
    "prefill-pages-missing-while-load-falls": (
        traffic(
            [(240.0, 4.0, 4.0), (60.0, 4.0, 1.5), (420.0, 1.5, 1.5)],
            input_tokens=2500,
            output_tokens=260,
        ),
        [
            (270.0, Fault(kind=FaultKind.MISSING_PAGE, pool="prefill")),
            (450.0, Fault(kind=FaultKind.CLEAR, pool="prefill")),
        ],
    ),
}


def decision_log(played: Played) -> str:
    """Every tick and pool: time, replicas asked for and ready, and why."""
    lines = [f"{'time_s':>6} {'pool':<8} {'asked':>5} {'ready':>5}  reason"]
    for plan, seen in zip(played.plans, played.observations, strict=True):
        ready = {state.pool: state.ready_replicas for state in seen[-1].pools}
        lines += [
            f"{plan.at_s:6.0f} {d.pool.name:<8} {d.replicas:>5} {ready[d.pool]:>5}  {d.reason}"
            for d in plan.decisions
        ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_decision_log_is_the_one_that_was_looked_at(name: str) -> None:
    requests, faults = SCENARIOS[name]
    tier = quick_start(load_tier(demo_tier_path()), seconds=60.0)
    played = play_directly(
        tier, requests, {"prefill": 2, "decode": 2}, until_s=UNTIL_S, faults=faults
    )
    log, file = decision_log(played), GOLDEN / f"{name}.txt"
    if os.environ.get("PHASEWISE_UPDATE_GOLDEN") == "1":
        file.write_text(log)

    assert log.splitlines() == file.read_text().splitlines()


def test_every_golden_log_belongs_to_a_scenario() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(SCENARIOS)
