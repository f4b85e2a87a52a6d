"""What is told of measured starts, and one measured start of a fake engine in a real process."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from phasewise.startups import (
    StartupsAsked,
    lead_sentences,
    learned,
    measure_startups,
    pool_of,
    stage_table,
)
from serving.errors import Misconfigured, Unavailable
from serving.local.measured_start import measure_start
from serving.local.ports import FreePorts
from serving.local.replica import PoolSetup
from serving.local.startups import StartRecord
from serving.schema.tier import load_tier
from serving.testing import DECODE
from serving.types import Phase, StartKind, StartStage

ROOT = Path(__file__).parents[2]
TIER = ROOT / "examples" / "startup-tier.yaml"
ENGINE = ROOT / "tests" / "local" / "fake_engine.py"
SERVE = PoolSetup(name="serve", phase=Phase.BOTH, variant="v", initial=0, most=1)


def record(number: int, *, cold: bool, weights_s: float | None) -> StartRecord:
    stages = [(StartStage.PROCESS, 10.0), (StartStage.READY, 0.5)]
    if weights_s is not None:
        stages.insert(1, (StartStage.WEIGHTS, weights_s))
    asked_s = 1000.0 * number
    return StartRecord(
        replica=f"serve-{number}",
        pool="serve",
        asked_s=asked_s,
        ended_s=asked_s + 10.5 + (weights_s or 1.0),
        cold=cold,
        stages=tuple(stages),
    )


RECORDS = [record(n, cold=n % 2 == 1, weights_s=145.0 if n % 2 else 2.0) for n in range(1, 9)]


def test_the_lead_model_learns_both_kinds() -> None:
    lead = learned(DECODE, RECORDS, prior_s=60.0)

    assert lead is not None
    assert [(k.kind, k.starts, k.p50_s) for k in lead.kinds] == [
        (StartKind.COLD, 4, 155.5),
        (StartKind.WARM, 4, 12.5),
    ]
    assert "cold: 4 starts seen, half within 155.5 s" in lead_sentences(lead, prior_s=60.0)[0]


def test_the_table_has_every_start_the_medians_and_what_is_unknown() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(stage_table([*RECORDS, record(9, cold=False, weights_s=None)]))
    text = console.export_text()

    assert text.count("median") == 2
    assert "145.00 s" in text
    assert "unknown" in text
    assert "0.00 s" not in text.replace("10.00 s", "").replace("0.50 s", "")


def test_a_pool_that_is_not_there_is_named() -> None:
    with pytest.raises(Misconfigured, match="expected one of serve"):
        pool_of(load_tier(TIER), "decode")


def test_no_starts_are_too_few() -> None:
    with pytest.raises(Misconfigured, match="too few"):
        measure_startups(StartupsAsked(tier=TIER, runs=0), Console())


@dataclass(frozen=True)
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str]
    http_port: int


def command_of(*more: str) -> Command:
    port = FreePorts().take()
    argv = (sys.executable, "-S", str(ENGINE), "--port", str(port), *more)
    return Command(argv=argv, env={}, http_port=port)


async def test_one_start_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    async def weights() -> bool:
        return True

    found = await measure_start(
        "serve-1",
        SERVE,
        model="m",
        weights=weights,
        command=command_of,
        log_file=tmp_path / "engine.log",
        unix_s=time.monotonic,
        look_s=0.01,
    )

    assert found.cold is True
    assert found.ended_s is not None
    assert StartStage.READY in dict(found.stages)


async def test_an_engine_that_ends_at_once_says_why(tmp_path: Path) -> None:
    async def weights() -> bool:
        return False

    with pytest.raises(Unavailable, match="serve-1 ended while it started"):
        await measure_start(
            "serve-1",
            SERVE,
            model="m",
            weights=weights,
            command=lambda: command_of("--no-such-option"),
            log_file=tmp_path / "engine.log",
            unix_s=time.monotonic,
            look_s=0.01,
        )
