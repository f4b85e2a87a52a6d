"""What a person sees of a local tier on a terminal of 80 columns, and where there is none."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from phasewise.local_screen import Screen, replica_table
from serving.local.events import Event, EventKind
from serving.local.figures import Figures
from serving.local.replica import LocalReplica, PoolSetup
from serving.local.run_state import RunState
from serving.local.states import LocalState
from serving.local.supervisor import LocalTier
from serving.types import Phase, StartStage

POOLS = tuple(
    PoolSetup(name=name, phase=phase, variant="v", initial=2, most=4)
    for name, phase in (("prefill", Phase.PREFILL), ("decode", Phase.DECODE))
)
READY = Event(at_s=0.0, kind=EventKind.READY, replica="d", pool="decode", words="d serves [1]")


def a_replica(pool: int, number: int, *, started: bool = True, **more: Any) -> LocalReplica:
    """One that took 24.0, 12.5, 108.0 and 1.5 seconds in the stages of its start."""
    setup = POOLS[pool]
    replica = LocalReplica(f"{setup.name}-{number:04d}", setup, asked_s=0.0)
    if started:
        replica.start.line("Starting to load model", 24.0)
        replica.start.line("Loading weights took 12.5 seconds", 36.5)
        replica.start.enter(StartStage.READY, 144.5)
        replica.start.end(146.0)
        replica.state, replica.ready_s = LocalState.READY, 146.0
        replica.figures = Figures(running=96, waiting=32, kv_ratio=1.0)
    for name, value in more.items():
        setattr(replica, name, value)
    return replica


@pytest.fixture
def tier(tmp_path: Path) -> LocalTier:
    """A tier that was never started, with a replica in every state."""
    made = LocalTier(
        name="local",
        model="m",
        pools=POOLS,
        launcher=None,
        state=RunState(folder=tmp_path, run="r", engine="vllm", tier="local"),
        unix_s=lambda: 0.0,
    )
    made._shared.roster.replicas += [
        a_replica(0, 1),
        a_replica(0, 2, flip_to="decode", state=LocalState.DRAINING),
        a_replica(1, 1, state=LocalState.DRAINING),
        a_replica(1, 2, state=LocalState.DRAINING, ending=True),
        a_replica(1, 3, started=False),
    ]
    return made


def drawn(tier: LocalTier, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(replica_table(tier))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_80_columns_hold_the_whole_table(tier: LocalTier) -> None:
    assert drawn(tier, 80) == [
        "tier local, ready: prefill 1 of 2, decode 0 of 2",
        "replica      state           process s weights s compile s ready s requests   KV",
        "prefill-0001 ready                24.0      12.5     108.0     1.5      128 100%",
        "prefill-0002 flips to decode      24.0      12.5     108.0     1.5      128 100%",
        "decode-0001  drains               24.0      12.5     108.0     1.5      128 100%",
        "decode-0002  ends                 24.0      12.5     108.0     1.5      128 100%",
        "decode-0003  starts: process",
    ]


def test_longer_names_are_folded_and_nothing_is_cut_off(tier: LocalTier) -> None:
    for replica in tier.replicas():
        replica.name = replica.name.replace("code-", "code-h100-of-the-second-rack-")
    lines = drawn(tier, 80)

    assert max(len(line) for line in lines) <= 80
    assert not any("…" in line for line in lines)
    assert sum("100%" in line for line in lines) == 4


def test_on_a_terminal_events_stay_and_the_table_goes(tier: LocalTier) -> None:
    said: list[str] = []
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system=None)

    async def play() -> None:
        async with Screen(said.append, console=console) as shown:
            shown.follow(tier)
            await asyncio.sleep(0)
            shown.event(READY)

    asyncio.run(play())
    text = out.getvalue()

    assert said == []
    assert "ready: d serves [1]\n" in text
    assert "prefill-0002 flips to decode" in text
    rest = text[text.rindex("decode-0003") :]
    assert rest.count("\x1b[1A\x1b[2K") == 7  # every line of the table is taken away


def test_headless_each_event_is_one_line() -> None:
    said: list[str] = []
    screen = Screen(said.append, console=None)
    screen.event(READY)
    screen.making("torch", 0.5)

    assert said[0].endswith("ready: d serves [1]")
    assert said[1] == "torch (50%)"
