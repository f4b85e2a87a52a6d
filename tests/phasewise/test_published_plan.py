"""The published plan, from the recorder that writes it to the watcher that answers from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.ledger import Ledger
from autoscaler.plan_codec import PublishedPlan, dump_published, load_published
from autoscaler.state import new_state
from autoscaler.tick import Phasewise
from autoscaler.types import Plan, TierSettings
from phasewise.places import plan_file
from phasewise.recording import LedgerRecorder, replace_file
from phasewise.serving_plan import PlanWatch
from phasewise.tier_setup import tier_settings
from serving.errors import Misconfigured
from serving.schema.tier import demo_tier_path, load_tier
from serving.types import Observation


class Watch:
    """A watcher of one file, with a clock that a test moves."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.now_s = 1000.0
        self._watch = PlanWatch({"t": file}, monotonic_s=lambda: self.now_s)

    def write(self, written: int, *, epoch: int = 1) -> None:
        plan = Plan(tier="t", epoch=epoch, at_s=5.0, policy="p", decisions=())
        published = PublishedPlan(mode="act", plan=plan, written=written)
        replace_file(self.file, dump_published(published))

    def look(self, *, after_s: float = 0.0) -> float | None:
        """Look again; the plan's age then."""
        self.now_s += after_s
        self._watch.look()
        return self._watch.seen("t").age_s

    @property
    def epoch(self) -> int | None:
        plan = self._watch.seen("t").plan
        return None if plan is None else plan.epoch

    @property
    def problem(self) -> str:
        return self._watch.seen("t").problem


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path / "a.sqlite.plan.json")


def test_a_plan_ages_by_the_watchers_clock_until_its_heartbeat_moves(watch: Watch) -> None:
    watch.look()
    watch.write(1)
    ages = [watch.look(), watch.look(after_s=20.0), watch.look(after_s=71.0)]
    watch.write(2, epoch=2)

    assert ages == [0.0, 20.0, 91.0]
    assert watch.look() == 0.0
    assert watch.epoch == 2


def test_a_plan_that_was_there_before_is_of_unknown_age_until_it_is_renewed(watch: Watch) -> None:
    watch.write(41)

    assert watch.look() is None
    assert watch.look(after_s=15.0) is None
    watch.write(42)
    assert watch.look() == 0.0


def test_the_same_count_written_again_is_no_heartbeat(watch: Watch) -> None:
    watch.look()
    watch.write(3)
    watch.look()
    watch.write(3, epoch=9)

    assert watch.look(after_s=30.0) == 30.0


def test_a_count_that_fell_is_another_writers_and_of_unknown_age(watch: Watch) -> None:
    watch.look()
    watch.write(9)
    watch.look()
    watch.write(1)

    assert watch.look() is None
    watch.write(2)
    assert watch.look() == 0.0


def test_a_file_that_goes_or_breaks_leaves_the_last_plan_to_age(watch: Watch) -> None:
    watch.look()
    watch.write(1, epoch=7)
    watch.look()
    watch.file.write_text("{")

    assert watch.look(after_s=10.0) == 10.0
    assert "cannot be read" in watch.problem
    watch.file.unlink()
    assert watch.look(after_s=10.0) == 20.0
    assert "is not there" in watch.problem
    assert watch.epoch == 7
    watch.write(2)
    assert watch.look() == 0.0
    assert watch.problem == ""


def test_a_missing_file_is_no_plan_and_says_so(watch: Watch) -> None:
    assert watch.look() is None
    assert watch.epoch is None
    assert str(watch.file) in watch.problem


# The recorder


def _tick(settings: TierSettings, file: Path, *, acts: bool, times: int = 1) -> PublishedPlan:
    ledger = Ledger(file)
    state = new_state(settings)
    recorder = LedgerRecorder(
        ledger, settings, state, acts=acts, max_age_s=86400.0, max_bytes=1 << 24
    )
    for number in range(times):
        observation = Observation(at_s=15.0 * number, samples=(), pools=())
        state, plan = Phasewise(settings).tick(state, [observation])
        recorder.record([observation], plan, state)
    ledger.close()
    return load_published(plan_file(file).read_bytes())


@pytest.fixture
def settings() -> TierSettings:
    return tier_settings(load_tier(demo_tier_path()))


@pytest.mark.parametrize(("acts", "mode"), [(True, "act"), (False, "advise")])
def test_the_mode_is_published_with_the_plan(
    settings: TierSettings, tmp_path: Path, acts: bool, mode: str
) -> None:
    assert _tick(settings, tmp_path / "l.sqlite", acts=acts).mode == mode


def test_the_count_of_writes_grows_at_every_tick_and_over_restarts(
    settings: TierSettings, tmp_path: Path
) -> None:
    first = _tick(settings, tmp_path / "one.sqlite", acts=True, times=3)
    plan_file(tmp_path / "two.sqlite").write_bytes(dump_published(first))
    second = _tick(settings, tmp_path / "two.sqlite", acts=True, times=2)

    assert first.written == 3
    assert first.plan.epoch == 3
    assert second.written == 5


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"tier": "an old plan"}'])
def test_counting_starts_anew_where_nothing_can_be_read(
    settings: TierSettings, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "l.sqlite"
    if content is not None:
        plan_file(file).write_bytes(content)

    assert _tick(settings, file, acts=True).written == 1


@pytest.mark.parametrize("mode", ["approve", "", None])
def test_a_mode_that_nobody_knows_is_not_read_as_acting(mode: str | None) -> None:
    plan = Plan(tier="t", epoch=1, at_s=0.0, policy="p", decisions=())
    good = dump_published(PublishedPlan(mode="act", plan=plan, written=1))
    text = "null" if mode is None else f'"{mode}"'

    with pytest.raises(Misconfigured, match="mode"):
        load_published(good.replace(b'"act"', text.encode()))
