"""However a supervisor ends, nothing of its run lives on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.local import keeper
from serving.local.run_state import RunState, read_state, supervisor_of

SUPERVISOR = Path(__file__).with_name("supervise_fakes.py")
WITHIN_S = 60.0


def until(true: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < end_s, what
        threading.Event().wait(0.02)


def sleeper(**env: str) -> subprocess.Popen[bytes]:
    code = "import time; print('up', flush=True); time.sleep(600)"
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, **env},
        start_new_session=True,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    return child


def state_file(folder: Path, **more: object) -> Path:
    RunState(folder=folder, run="r-keeper", engine="vllm", tier="t").save()
    file = folder / "state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **more}))
    return file


@pytest.mark.parametrize("ended", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
def test_nothing_lives_on_when_the_supervisor_has_ended(
    tmp_path: Path, ended: signal.Signals
) -> None:
    with (tmp_path / "said").open("w") as said:
        supervisor = subprocess.Popen(
            [sys.executable, str(SUPERVISOR), str(tmp_path)], stdout=said, stderr=said
        )
    try:
        until(lambda: "serves" in (tmp_path / "said").read_text(), "the tier serves")
        state = read_state(tmp_path)
        assert state is not None
        run = state["run"]
        assert len(keeper.processes_of(run)) == 3
        assert supervisor_of(state) == supervisor.pid
        supervisor.send_signal(ended)
        supervisor.wait()
        until(lambda: not keeper.processes_of(run, keeper.sessions_of(state)), "processes are left")
        until(lambda: read_state(tmp_path) is None, "the state file is left")
        assert not Path(state["temporary"]).exists()
    finally:
        supervisor.kill()
        supervisor.wait()
        keeper.clean(tmp_path / "state.json")


def test_a_process_is_of_the_run_by_its_marker_or_by_its_session(tmp_path: Path) -> None:
    marked = sleeper(**{keeper.MARKER: "r-keeper"})
    in_session = sleeper()
    other = sleeper(**{keeper.MARKER: "another run"})
    try:
        found = keeper.processes_of("r-keeper", [in_session.pid])
        assert set(found) == {marked.pid, in_session.pid}

        file = state_file(tmp_path, sessions=[in_session.pid])
        assert keeper.clean(file)
        assert (marked.wait(), in_session.wait()) == (-9, -9)
        assert other.poll() is None
        assert not file.exists()
    finally:
        for child in (marked, in_session, other):
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()


def test_a_state_file_from_before_the_last_boot_names_no_process(tmp_path: Path) -> None:
    bystander = sleeper()
    try:
        file = state_file(tmp_path, sessions=[bystander.pid], boot="an earlier one")
        assert keeper.clean(file)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
        if bystander.stdout is not None:
            bystander.stdout.close()


def test_only_a_folder_of_its_own_is_removed(tmp_path: Path) -> None:
    mine, other = tmp_path / "phasewise-x", tmp_path / "home"
    mine.mkdir()
    other.mkdir()
    keeper.clean(state_file(tmp_path, temporary=str(other)))
    keeper.clean(state_file(tmp_path, temporary=str(mine)))

    assert other.is_dir()
    assert not mine.exists()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"run": 3}'])
def test_a_broken_state_file_ends_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "state.json"
    file.write_text(text)

    assert keeper.clean(file)


def test_shared_memory_that_somebody_has_mapped_stays(tmp_path: Path) -> None:
    name = f"/dev/shm/phasewise-test-{os.getpid()}"
    Path(name).write_bytes(b"x" * 4096)
    code = (
        "import mmap, os, sys, time\n"
        f"f = open({name!r}, 'r+b'); m = mmap.mmap(f.fileno(), 4096)\n"
        "print('up', flush=True); time.sleep(600)"
    )
    child = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert name in keeper.shared_memory_of([child.pid])
        keeper.remove_shared_memory([name])
        assert Path(name).exists()
        child.kill()
        child.wait()
        keeper.remove_shared_memory([name, "/etc/hostname"])
        assert not Path(name).exists()
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
        Path(name).unlink(missing_ok=True)
