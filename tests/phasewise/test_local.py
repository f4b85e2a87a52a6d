"""`phasewise local` as a person meets it: up, status, down, and what goes wrong in one sentence."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phasewise import cli
from phasewise.local_down import alone_in
from serving.errors import Misconfigured
from serving.local import keeper
from serving.local.run_state import RunState, read_state
from serving.schema.tier import demo_tier_path, load_tier

EXAMPLE = Path(__file__).parents[2] / "examples" / "local-tier.yaml"
SIMULATED_LINE = r"(prefill|decode)-00\d\d \(\1\) ready, 127\.0\.0\.1:\d+"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code: object = 0
    try:
        cli.main(["local", *arguments])
    except SystemExit as ended:
        code = ended.code or 0
    said = capsys.readouterr()
    assert isinstance(code, int)
    return code, said.out, said.err


@pytest.fixture
def simulated(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The packaged tier, simulated, as a process of its own."""
    options = ["--tier", str(demo_tier_path()), "--engine", "simulated", "--folder", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "phasewise", "local", "up", *options, "--headless"],
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_the_simulated_kind_comes_up_says_where_and_goes_down(
    tmp_path: Path, simulated: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated.stdout is not None
    where = json.loads(simulated.stdout.readline())
    _, status, _ = run(capsys, "status", "--folder", str(tmp_path))
    second = run(
        *(capsys, "up", "--tier", str(demo_tier_path()), "--engine", "simulated"),
        *("--folder", str(tmp_path)),
    )
    code, down, _ = run(capsys, "down", "--folder", str(tmp_path))

    assert where["http_sd"] == f"{where['control']}/sd"
    assert where["control"] in status
    assert "prefill-0001 (prefill) ready" in status
    assert second[0] == cli.EXIT_MISCONFIGURED
    assert "already up" in second[2]
    assert (code, down) == (0, "tier demo is down\n")
    assert simulated.wait(10) == 0
    assert read_state(tmp_path) is None


def test_down_cleans_up_after_a_supervisor_that_was_killed(
    tmp_path: Path, simulated: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated.stdout is not None
    simulated.stdout.readline()
    state = read_state(tmp_path)
    assert state is not None
    left = subprocess.Popen(
        [sys.executable, "-S", "-c", "print('up', flush=True); import time; time.sleep(600)"],
        env={**os.environ, keeper.MARKER: state["run"]},
        stdout=subprocess.PIPE,
    )
    assert left.stdout is not None
    left.stdout.readline()
    os.kill(simulated.pid, signal.SIGKILL)
    simulated.wait()
    _, status, _ = run(capsys, "status", "--folder", str(tmp_path))
    _, down, _ = run(capsys, "down", "--folder", str(tmp_path))

    assert "is gone" in status
    assert "its supervisor was gone" in down
    assert left.wait(10) == -signal.SIGKILL
    left.stdout.close()
    assert run(capsys, "down", "--folder", str(tmp_path))[1] == "nothing is up\n"
    assert run(capsys, "status", "--folder", str(tmp_path))[1] == "nothing is up\n"


def test_the_simulated_kind_in_the_background_is_asked_and_goes_without_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = ("--folder", str(tmp_path))
    tier = ("--tier", str(demo_tier_path()), "--engine", "simulated")
    up = subprocess.run(
        [sys.executable, "-m", "phasewise", "local", "up", *tier, *here, "--background"],
        capture_output=True,
        text=True,
        check=False,
    )
    state = read_state(tmp_path)
    assert state is not None
    (tmp_path / "weights").mkdir()
    try:
        _, status, _ = run(capsys, "status", *here)
    finally:
        down = run(capsys, "down", *here)
    head, *replicas = status.splitlines()

    assert (up.returncode, up.stderr) == (0, "")
    control = json.loads(up.stdout)["control"]
    assert head == f"tier demo (simulated), control {control}, process {state['supervisor']}"
    assert {line.split("-")[0] for line in replicas} == {"prefill", "decode"}
    assert all(re.fullmatch(SIMULATED_LINE, line) for line in replicas)
    assert down[:2] == (0, "tier demo is down\n")
    assert keeper.processes_of(state["run"]) == ()
    assert keeper.start_ticks(state["supervisor"]) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "up.log"]


def test_a_tier_that_cannot_be_started_here_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "up", "--tier", str(demo_tier_path()), "--folder", str(tmp_path))

    assert (code, out) == (cli.EXIT_MISCONFIGURED, "")
    assert len(err.splitlines()) == 1
    assert "local" in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--engine", "sglang"], "no such engine"),
        (["--port", "70000"], "no such port"),
        (["--tier", "no-such.yaml"], "no such file"),
    ],
)
def test_wrong_options_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    code, out, err = run(capsys, "up", "--tier", str(EXAMPLE), "--folder", str(tmp_path), *options)

    assert (code, out) == (cli.EXIT_MISCONFIGURED, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_a_taken_port_is_one_sentence_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = run(
            *(capsys, "up", "--tier", str(EXAMPLE), "--folder", str(tmp_path)),
            *("--port", str(port)),
        )

    assert code == cli.EXIT_MISCONFIGURED
    assert f"127.0.0.1:{port}" in err
    assert read_state(tmp_path) is None


def test_a_run_of_another_boot_is_not_taken_for_one_that_is_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = RunState(
        folder=tmp_path, run="old", engine="vllm", tier="local", supervisor=os.getpid()
    )
    state.save()
    told = json.loads(state.file.read_text())
    state.file.write_text(json.dumps({**told, "boot": "an earlier one"}))

    assert "is gone" in run(capsys, "status", "--folder", str(tmp_path))[1]
    assert "its supervisor was gone" in run(capsys, "down", "--folder", str(tmp_path))[1]


def test_the_example_is_a_tier_that_can_be_started_here() -> None:
    tier = load_tier(EXAMPLE)

    assert all(variant.local is not None for variant in tier.spec.variants)
    assert [pool.replicas.initial for pool in tier.spec.pools] == [1, 1]


@pytest.mark.parametrize(
    "text", ["{bad", "[]", "null", '{"run": "x", "sessions": "abc"}', "[" * 100_000]
)
def test_a_damaged_state_file_is_one_sentence_and_never_nothing_is_up(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "state.json").write_text(text)

    with pytest.raises(Misconfigured, match=r"state\.json"):
        read_state(tmp_path)
    assert keeper.clean(tmp_path / "state.json") in (True, False)  # and never raises


def test_the_second_of_two_that_come_up_in_one_folder_is_refused(tmp_path: Path) -> None:
    with alone_in(tmp_path), pytest.raises(Misconfigured, match="local"), alone_in(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()

    with pytest.raises(Misconfigured, match="a-file"), alone_in(tmp_path / "a-file" / "run"):
        pass


def test_a_session_of_a_number_that_is_used_again_is_left_alone() -> None:
    own = os.getpid()

    assert keeper.sessions_of({"sessions": [[own, -1]]}) == ()
    assert keeper.sessions_of({"sessions": [[own, keeper.start_ticks(own)], None, "x"]}) == (own,)
