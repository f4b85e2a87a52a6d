"""However a command ends, nothing that it started outlives it."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import ExitStack
from pathlib import Path

import pytest

from phasewise import cli
from phasewise.backtesting import PolicyChoice
from phasewise.commands import check
from phasewise.comparison import Peers, Workload
from phasewise.ending import sigterm_interrupts
from serving.errors import Unavailable
from serving.schema.tier import demo_tier_path

WITHIN_S = 30.0
PARTS = {"demo": ("simulate", "spawn_main"), "backtest": ("spawn_main",)}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Long enough to be still played when the signal comes."""
    rng, lines = random.Random(1), ["t_s,input_tokens,output_tokens"]
    lines += [f"{i * 0.5:.1f},{rng.randint(900, 3000)},{rng.randint(50, 250)}" for i in range(2400)]
    file = tmp_path / "trace.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def group(leader: int) -> dict[int, str]:
    """The living processes of a group, and their command lines."""
    found: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            state, _, of_group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has just ended
            continue
        if int(of_group) == leader and state != "Z":
            found[int(folder.name)] = line
    return found


def until(true: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < end_s, what
        threading.Event().wait(0.02)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130)],
    ids=["killed", "terminated", "interrupted"],
)
@pytest.mark.parametrize("command", PARTS)
def test_a_command_that_is_ended_leaves_no_process_of_its_own(
    tmp_path: Path, trace: Path, command: str, number: signal.Signals, code: int
) -> None:
    arguments = {
        "demo": ["--headless", "--no-console", "--ledger", str(tmp_path / "d.sqlite")],
        "backtest": ["--policy", "phasewise,last_value:0.1"],
    }[command]
    # a shell's background job ignores interrupts, and so would whatever it starts
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "phasewise", command, "--trace", str(trace), *arguments],
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    signal.signal(signal.SIGINT, before)
    try:
        until(
            lambda: all(
                any(part in line for line in group(process.pid).values()) for part in PARTS[command]
            ),
            "it starts",
        )
        process.send_signal(number)

        assert process.wait(WITHIN_S) == code
        until(lambda: not group(process.pid), f"left: {group(process.pid)}")
        said_text = (tmp_path / "said").read_text()
        if number is signal.SIGKILL:
            # a worker that was just being started dies of the pipe that its parent left half read:
            # the interpreter's own words, and none of ours
            assert "/phasewise/" not in said_text.partition("Traceback")[2]
        else:
            assert "Traceback" not in said_text
    finally:
        if group(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("ignored", [False, True], ids=["in-front", "in-the-background"])
def test_sigterm_is_as_an_interrupt_but_for_its_code(ignored: bool) -> None:
    cleaned: list[bool] = []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    term = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended, ExitStack() as stack:  # noqa: PT012 - the order
            stack.enter_context(sigterm_interrupts())
            stack.callback(cleaned.append, True)
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)

    assert ended.value.code == 143
    assert cleaned == [True]
    assert signal.getsignal(signal.SIGTERM) == term
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts():
        raise KeyboardInterrupt


def test_a_simulation_that_is_ended_from_outside_is_a_sentence_and_exit_code_3(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = Workload(tier_file=demo_tier_path(), trace=str(trace), volume=20.0, seed=1)
    said: list[str] = []
    peers = Peers(workload, processes=1, on_played=lambda _: None, say=said.append)
    choice = PolicyChoice(name="best_static", prefill_replicas=9, decode_replicas=9)

    def command() -> None:
        job = peers.submit(peers.play, choice)
        until(multiprocessing.active_children, "a process starts")
        for child in multiprocessing.active_children():
            child.kill()
        job.result(WITHIN_S)

    monkeypatch.setattr(check, "command", command)
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main(["check"])
    finally:
        peers.close()

    assert ended.value.code == cli.EXIT_UNAVAILABLE
    (line,) = capsys.readouterr().err.splitlines()
    assert "a simulation was ended from outside" in line
    assert said == []  # nothing played any more


def test_what_still_plays_is_ended_and_said(trace: Path) -> None:
    workload = Workload(tier_file=demo_tier_path(), trace=str(trace), volume=20.0, seed=1)
    said: list[str] = []
    peers = Peers(workload, processes=1, on_played=lambda _: None, say=said.append)
    choice = PolicyChoice(name="best_static", prefill_replicas=9, decode_replicas=9)
    jobs = [peers.submit(peers.play, choice) for _ in range(3)]
    until(lambda: peers._playing and multiprocessing.active_children(), "a simulation plays")
    peers.close()

    assert said == ["stopping…"]
    assert multiprocessing.active_children() == []
    for job in jobs:
        assert isinstance(job.exception(WITHIN_S), Unavailable | CancelledError)
