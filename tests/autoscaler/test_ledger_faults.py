"""What can go wrong with a ledger's file is one sentence, and a tick is written whole or not."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from autoscaler.explain import explain
from autoscaler.ledger import Ledger
from autoscaler.recorded import RecordedTick
from autoscaler.replay import replay, resume
from autoscaler.state import LearnedState, new_state
from autoscaler.testing import TIER, Load, recorded_run
from serving.errors import Misconfigured, Unavailable

NOBODY = 65_534
READS: dict[str, Callable[[Ledger], Any]] = {
    "states": lambda ledger: list(ledger.states()),
    "last_state": Ledger.last_state,
    "ticks": lambda ledger: list(ledger.ticks()),
    "newest_ticks": lambda ledger: ledger.newest_ticks(9),
    "tick": lambda ledger: ledger.tick(3),
    "settings_at": lambda ledger: ledger.settings_at(3),
    "replay": lambda ledger: list(replay(ledger)),
    "resume": lambda ledger: resume(ledger, TIER),
    "trim": lambda ledger: ledger.trim(now_s=1e12, max_age_s=1.0, max_bytes=1),
}
COLUMNS = {
    "ticks": ("at_s", "observations", "plan", "state_hash"),
    "states": ("epoch", "at_s", "version", "settings", "state"),
}


def played() -> list[tuple[RecordedTick, LearnedState]]:
    found: list[tuple[RecordedTick, LearnedState]] = []
    recorded_run([Load()] * 6, on_tick=lambda tick, state: found.append((tick, state)))
    return found


def add(ledger: Ledger, tick: RecordedTick, state: LearnedState) -> None:
    ledger.append(tick.observations, tick.plan, state, TIER, version="1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ledger") / "whole.sqlite"
    ledger = Ledger(path)
    ledger.begin(new_state(TIER), TIER, version="1")
    for tick, state in played():
        add(ledger, tick, state)
    ledger.close()
    return path


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "copy.sqlite"))


# ---- one writer


def test_a_second_writer_is_told_who_holds_the_ledger_and_the_first_goes_on(tmp_path: Path) -> None:
    path, steps = tmp_path / "l.sqlite", played()
    first = Ledger(path)
    first.begin(new_state(TIER), TIER, version="1")
    add(first, *steps[0])
    for fresh in (False, True):
        with pytest.raises(Misconfigured, match="another run holds this ledger") as refused:
            Ledger(path, fresh=fresh)
        assert refused.value.found == f"process {os.getpid()}"
    beside = Ledger(path, read_only=True)
    add(first, *steps[1])

    assert [tick.epoch for tick in beside.ticks()] == [1, 2]
    beside.close()
    first.close()
    Ledger(path).close()


def test_a_killed_writer_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    program = (
        "import sys, pathlib\n"
        "from autoscaler.ledger import Ledger\n"
        f"ledger = Ledger(pathlib.Path({str(path)!r}))\n"
        "print('holds', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holds\n"
        with pytest.raises(Misconfigured, match=f"found process {holder.pid}"):
            Ledger(path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()

        Ledger(path).close()


@pytest.mark.parametrize("content", [b"a note, and not a ledger " * 100, b""], ids=["note", "none"])
def test_a_file_that_could_not_be_opened_is_not_held(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "l.sqlite"
    path.write_bytes(content)
    for _ in range(2):
        if content:
            with pytest.raises(Misconfigured, match="cannot be opened"):
                Ledger(path)
        else:
            Ledger(path).close()


def test_a_fresh_ledger_holds_nothing_of_the_old_one(copy: Path) -> None:
    ledger = Ledger(copy, fresh=True)

    assert list(ledger.ticks()) == []
    assert ledger.last_state() is None
    ledger.close()


# ---- a tick is written whole or not at all


@contextmanager
def full_disk(ledger: Ledger) -> Iterator[None]:
    database = ledger._db
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count={pages}")
    yield
    database.execute("PRAGMA max_page_count=1000000")


def test_what_a_full_disk_refuses_is_said_and_can_be_written_later(tmp_path: Path) -> None:
    ledger, left = Ledger(tmp_path / "l.sqlite"), played()
    ledger.begin(new_state(TIER), TIER, version="1")
    refused = ""
    with full_disk(ledger):
        while not refused:  # the pages that are there have room for some
            try:
                add(ledger, *left[0])
                left.pop(0)
            except Unavailable as error:
                refused = error.what
        with pytest.raises(Unavailable, match="cannot be written"):
            add(ledger, *left[0])
    for step in left:
        add(ledger, *step)

    assert "l.sqlite cannot be written: " in refused
    assert "full" in refused
    assert [each.differences for each in replay(ledger)] == [()] * 6
    ledger.close()


def test_a_tick_twice_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    ledger, steps = Ledger(tmp_path / "l.sqlite"), played()
    ledger.begin(new_state(TIER), TIER, version="1")
    add(ledger, *steps[0])
    with pytest.raises(Unavailable, match="cannot be written: UNIQUE"):
        add(ledger, *steps[0])
    add(ledger, *steps[1])

    assert [each.differences for each in replay(ledger)] == [()] * 2
    ledger.close()


# ---- whatever is in the file, a reader says a sentence


def readable(path: Path) -> dict[str, str]:
    """What each way of reading says; empty where it could read."""
    said: dict[str, str] = {}
    for name, read in READS.items():
        ledger = Ledger(path, read_only=name != "trim")
        try:
            read(ledger)
        except Misconfigured as error:
            said[name] = str(error)
        finally:
            ledger.close()
    return said


@pytest.mark.parametrize("value", ["text", 7, b"\x00\x01"], ids=["text", "number", "bytes"])
@pytest.mark.parametrize(
    ("table", "column"), [(table, name) for table, names in COLUMNS.items() for name in names]
)
def test_a_value_of_another_kind_is_a_sentence(
    copy: Path, table: str, column: str, value: object
) -> None:
    with sqlite3.connect(copy) as database:
        database.execute(f"UPDATE {table} SET {column} = ?", (value,))
    database.close()
    said = readable(copy)

    if (table, column) != ("states", "at_s"):  # which only trimming looks at, between two states
        assert said or value in ("text", 7)
    if column in ("observations", "plan", "settings", "state"):
        assert said
    assert all("ledger" in sentence and "\n" not in sentence for sentence in said.values())


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_file_with_a_hole_is_a_sentence(copy: Path, share: float) -> None:
    content = bytearray(copy.read_bytes())
    begin = max(8192, int(len(content) * share))
    content[begin : begin + 8192] = b"\xa5" * len(content[begin : begin + 8192])
    copy.write_bytes(content)

    assert any("damaged" in sentence for sentence in readable(copy).values())


@contextmanager
def read_only_folder(source: Path, *names: str) -> Iterator[Path]:
    """A copy in a folder where this user may write nothing; root gives up its rights for it."""
    folder = Path(tempfile.mkdtemp())
    for name in names:
        shutil.copy(source.with_name(name), folder / name)
        (folder / name).chmod(0o444)
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        if user == 0:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_copy_in_a_folder_that_cannot_be_written_is_read(whole: Path) -> None:
    with read_only_folder(whole, whole.name) as folder:
        ledger = Ledger(folder / whole.name, read_only=True)
        tick = ledger.tick(6)
        assert tick is not None
        assert explain(tick, TIER, "decode") is not None
        assert [each.differences for each in replay(ledger)] == [()] * 6
        ledger.close()
        with pytest.raises(Misconfigured, match="cannot be opened"):
            Ledger(folder / whole.name)


def test_a_copy_with_a_log_that_cannot_be_read_in_is_not_read_without_it(copy: Path) -> None:
    writer = Ledger(copy)
    writer.begin(new_state(TIER), TIER, version="2")
    with (
        read_only_folder(copy, copy.name, f"{copy.name}-wal") as folder,
        pytest.raises(Misconfigured, match="cannot be opened"),
    ):
        Ledger(folder / copy.name, read_only=True)
    writer.close()
