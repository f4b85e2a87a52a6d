"""The ledger of a run: it replays to the same plans, and says when it cannot be trusted."""

from __future__ import annotations

import shutil
import sqlite3
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from autoscaler.codec import dump_plan, load_plan, state_hash
from autoscaler.ledger import FULL_STATE_EVERY_S, Ledger
from autoscaler.replay import replay, resume
from autoscaler.state import LearnedState
from autoscaler.types import Plan, TierSettings
from phasewise import cli
from phasewise.tier_setup import tier_settings
from phasewise.times import when
from serving.schema.tier import Tier, demo_tier_path, load_tier
from serving.simulation.faults import Fault, FaultKind
from serving.types import Observation
from tests.scenarios.playing import Played, play_directly, quick_start, traffic

UNTIL_S = 1260.0  # long enough for a second and a third full state
REQUESTS = traffic(
    [(400.0, 3.0, 3.0), (100.0, 3.0, 1.0), (UNTIL_S - 500.0, 1.0, 1.0)],
    input_tokens=2400,
    output_tokens=150,
)
SIZES = {"prefill": 2, "decode": 1}


def demo_tier() -> Tier:
    return quick_start(load_tier(demo_tier_path()), seconds=60.0)


class Book:
    """A recorder that writes a ledger, as a run does."""

    def __init__(self, ledger: Ledger, settings: TierSettings, state: LearnedState) -> None:
        self.ledger = ledger
        self.settings = settings
        ledger.begin(state, settings, version="test")

    def record(self, observations: Sequence[Observation], plan: Plan, state: Any) -> None:
        self.ledger.append(observations, plan, state, self.settings, version="test")


class Killed(Exception):
    """Stands for the end of the process at this line."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Played]:
    """A finished run with some trouble in it, and its ledger."""
    file = tmp_path_factory.mktemp("ledger") / "run.sqlite"
    ledger = Ledger(file)
    played = play_directly(
        demo_tier(),
        REQUESTS,
        SIZES,
        until_s=UNTIL_S,
        recorder=lambda settings, state: Book(ledger, settings, state),
        faults=[
            (300.0, Fault(kind=FaultKind.MISSING_PAGE, pool="prefill")),
            (420.0, Fault(kind=FaultKind.CLEAR, pool="prefill")),
            (500.0, Fault(kind=FaultKind.KILL, pool="decode", replicas="decode-0001")),
        ],
    )
    ledger.close()
    return file, played


@pytest.fixture
def copy(recorded: tuple[Path, Played], tmp_path: Path) -> Path:
    return Path(shutil.copy(recorded[0], tmp_path / "copy.sqlite"))


def replayed(file: Path) -> tuple[int, list[str]]:
    """The exit code of `phasewise replay`, and the differences of every tick."""
    ledger = Ledger(file, read_only=True)
    try:
        differences = [said for tick in replay(ledger) for said in tick.differences]
    finally:
        ledger.close()
    return run("replay", str(file)), differences


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_the_ledger_holds_what_the_run_saw_and_decided(recorded: tuple[Path, Played]) -> None:
    file, played = recorded
    ledger = Ledger(file, read_only=True)
    ticks = list(ledger.ticks())
    ledger.close()

    assert [tick.epoch for tick in ticks] == list(range(1, len(played.plans) + 1))
    assert [tick.plan for tick in ticks] == played.plans
    assert [tick.observations for tick in ticks] == played.observations
    assert ticks[-1].state_hash == state_hash(played.state)


def test_a_whole_run_replays_without_a_difference(
    recorded: tuple[Path, Played], capsys: pytest.CaptureFixture[str]
) -> None:
    file, played = recorded

    assert replayed(file) == (0, [])
    (line,) = capsys.readouterr().out.splitlines()
    assert line == f"{file}: {len(played.plans)} ticks replayed, 0 come out otherwise"


def test_a_replay_writes_nothing(copy: Path) -> None:
    before = copy.read_bytes()

    assert replayed(copy)[0] == 0
    assert copy.read_bytes() == before


def tampered_plan(row: bytes) -> bytes:
    """The plan with one replica more for the first pool, and nothing else changed."""
    plan = load_plan(zlib.decompress(row))
    text = dump_plan(plan)
    before = b'"replicas":%d,' % (plan.decisions[0].replicas or 0)
    after = b'"replicas":%d,' % ((plan.decisions[0].replicas or 0) + 1)
    assert before in text
    return zlib.compress(text.replace(before, after, 1))


@pytest.mark.parametrize("epoch", [1, 17, 84])
def test_a_changed_decision_is_a_difference_of_that_tick_alone(
    copy: Path, capsys: pytest.CaptureFixture[str], epoch: int
) -> None:
    with sqlite3.connect(copy) as db:
        (row,) = db.execute("SELECT plan FROM ticks WHERE epoch = ?", (epoch,)).fetchone()
        db.execute("UPDATE ticks SET plan = ? WHERE epoch = ?", (tampered_plan(row), epoch))
    db.close()

    code, differences = replayed(copy)
    first, *_, last = capsys.readouterr().out.splitlines()

    assert code == 1
    assert len(differences) == 1
    assert "was recorded" in differences[0]
    assert first.startswith(f"tick {epoch} at {when(epoch * 15.0)}: demo/prefill: ")
    assert last.endswith(f"{UNTIL_S / 15:.0f} ticks replayed, 1 come out otherwise")


def test_changed_observations_change_the_state_from_that_tick_to_the_next_full_one(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(copy) as db:
        (other,) = db.execute("SELECT observations FROM ticks WHERE epoch = 9").fetchone()
        db.execute("UPDATE ticks SET observations = ? WHERE epoch = 10", (other,))
    db.close()

    code, differences = replayed(copy)
    first = capsys.readouterr().out.splitlines()[0]

    assert code == 1
    assert first.startswith("tick 10 at minute 2.5: ")
    assert "the full state recorded before this tick is another one" in differences
    # the recorded full state is taken from there on, so what follows it is the same again
    assert len(differences) < 2 * FULL_STATE_EVERY_S / 15 + 40


def test_a_tick_taken_out_is_noticed(copy: Path) -> None:
    with sqlite3.connect(copy) as db:
        db.execute("DELETE FROM ticks WHERE epoch = 20")
    db.close()

    assert replayed(copy)[0] == 1


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"not a ledger at all, but a note" * 50, id="text"),
        pytest.param(lambda data: data[: len(data) // 2], id="first-half"),
        pytest.param(lambda data: data[:5000], id="first-page"),
        pytest.param(lambda data: data[:100], id="header"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(
            lambda data: data[: len(data) // 3] + bytes(len(data) - len(data) // 3), id="zeros"
        ),
    ],
)
def test_a_file_that_is_no_whole_ledger_is_told_in_one_sentence(
    copy: Path, capsys: pytest.CaptureFixture[str], damage: Any
) -> None:
    copy.write_bytes(damage(copy.read_bytes()))
    before = copy.read_bytes()

    assert run("replay", str(copy)) == cli.EXIT_MISCONFIGURED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"phasewise: {copy}: ")
    assert copy.read_bytes() == before


def test_a_ledger_of_another_format_is_refused(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(copy) as db:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
    db.close()

    assert run("replay", str(copy)) == cli.EXIT_MISCONFIGURED
    (line,) = capsys.readouterr().err.splitlines()
    assert "found format 99" in line


def test_a_database_of_somebody_else_is_refused_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.sqlite"
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE photos (name TEXT)")
    db.close()
    before = file.read_bytes()

    assert run("replay", str(file)) == cli.EXIT_MISCONFIGURED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"phasewise: {file}: ")
    assert file.read_bytes() == before


@pytest.mark.parametrize("column", ["observations", "plan"])
def test_a_damaged_row_is_told_in_one_sentence(
    copy: Path, capsys: pytest.CaptureFixture[str], column: str
) -> None:
    with sqlite3.connect(copy) as db:
        db.execute(f"UPDATE ticks SET {column} = x'0102' WHERE epoch = 30")
    db.close()

    assert run("replay", str(copy)) == cli.EXIT_MISCONFIGURED
    (line,) = capsys.readouterr().err.splitlines()
    assert "damaged" in line


@pytest.mark.parametrize(
    ("limits", "first_kept"),
    [
        pytest.param({"max_age_s": 50.0, "max_bytes": 1 << 40}, 81, id="age"),
        pytest.param({"max_age_s": 400.0, "max_bytes": 1 << 40}, 41, id="within-a-stretch"),
        pytest.param({"max_age_s": 700.0, "max_bytes": 1 << 40}, 1, id="young-enough"),
        pytest.param({"max_age_s": 1e9, "max_bytes": 1}, 81, id="size"),
        pytest.param({"max_age_s": 1e9, "max_bytes": 1 << 40}, 1, id="nothing-to-do"),
    ],
)
def test_what_trimming_leaves_can_still_be_replayed_and_resumed(
    copy: Path, recorded: tuple[Path, Played], limits: dict[str, Any], first_kept: int
) -> None:
    ledger = Ledger(copy)
    dropped = ledger.trim(now_s=UNTIL_S, **limits)
    kept = [tick.epoch for tick in ledger.ticks()]
    state = resume(ledger, tier_settings(demo_tier()))
    ledger.close()

    assert kept == list(range(first_kept, 85))
    assert dropped == first_kept - 1
    assert replayed(copy) == (0, [])
    assert state_hash(state) == state_hash(recorded[1].state)


def test_a_tick_that_was_not_committed_is_not_there(
    copy: Path, recorded: tuple[Path, Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between the two rows of a tick that also writes a full state."""
    played = recorded[1]
    ledger = Ledger(copy)

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    monkeypatch.setattr(ledger, "_write_state", die)
    later = load_plan(dump_plan(played.plans[-1]).replace(b'"epoch":84', b'"epoch":85'))
    with pytest.raises(Killed):
        ledger.append(
            played.observations[-1], later, played.state, tier_settings(demo_tier()), version="x"
        )
    ledger.close()

    assert replayed(copy) == (0, [])
    again = Ledger(copy)
    assert [tick.epoch for tick in again.ticks()][-1] == 84
    assert state_hash(resume(again, tier_settings(demo_tier()))) == state_hash(played.state)
    again.close()


def test_every_prefix_of_a_run_resumes_to_the_state_it_had(
    recorded: tuple[Path, Played], copy: Path
) -> None:
    hashes = {}
    ledger = Ledger(recorded[0], read_only=True)
    for tick in ledger.ticks():
        hashes[tick.epoch] = tick.state_hash
    ledger.close()

    for newest in (83, 61, 41, 40, 39, 2, 1):
        with sqlite3.connect(copy) as db:
            db.execute("DELETE FROM ticks WHERE epoch > ?", (newest,))
            db.execute("DELETE FROM states WHERE epoch > ?", (newest,))
        db.close()
        shorter = Ledger(copy)
        state = resume(shorter, tier_settings(demo_tier()))
        shorter.close()
        assert state.epoch == newest
        assert state_hash(state) == hashes[newest]


def test_a_ledger_is_read_beside_its_writer_and_after_a_kill_left_its_log(
    copy: Path, recorded: tuple[Path, Played], tmp_path: Path
) -> None:
    played = recorded[1]
    writer = Ledger(copy)
    later = load_plan(dump_plan(played.plans[-1]).replace(b'"epoch":84', b'"epoch":85'))
    settings = tier_settings(demo_tier())
    writer.append(played.observations[-1], later, played.state, settings, version="x")
    beside = Ledger(copy, read_only=True)
    assert [tick.epoch for tick in beside.ticks(after_epoch=83)] == [84, 85]
    beside.close()

    # what a killed process leaves: the tick is in the write-ahead log, not yet in the file
    killed = tmp_path / "killed"
    killed.mkdir()
    for name in (copy.name, f"{copy.name}-wal"):
        shutil.copy(copy.with_name(name), killed / name)
    writer.close()
    left = Ledger(killed / copy.name, read_only=True)
    assert [tick.epoch for tick in left.ticks(after_epoch=83)] == [84, 85]
    left.close()
