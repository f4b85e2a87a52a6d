"""`explain` and `top`: ledger, API and terminal say the same numbers."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from autoscaler.codec import dump_observations, dump_plan, dump_settings
from autoscaler.ledger import Ledger
from autoscaler.recorded import RecordedTick
from autoscaler.replay import replay
from autoscaler.state import LearnedState, new_state
from autoscaler.testing import TIER, Load, decision_in, recorded_run
from phasewise.api import Api, ApiSettings
from phasewise.cli import main
from phasewise.explaining import explanation, measured, print_explanations
from phasewise.tier_board import TierBoard
from phasewise.times import when
from phasewise.topping import screen, sparkline, watch
from phasewise.watching import watched
from serving.errors import Misconfigured, Unavailable
from serving.testing import DECODE, PREFILL
from serving.types import Override, OverrideKind

FLOOR = Override(kind=OverrideKind.FLOOR, pool="decode", replicas=12, until_s=1800.0, by="ann")
STORY = [
    *[Load()] * 55,
    *[Load(scale=2.0)] * 6,
    *[Load(scale=0.4)] * 14,
    *[Load(blind=(PREFILL,), router=False)] * 4,
    *[Load(lost=(DECODE,))] * 2,
    *[Load(overrides=(FLOOR,))] * 6,
    *[Load(scale=0.36)] * 10,
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of a tier that lived through everything."""
    path = tmp_path_factory.mktemp("run") / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.begin(new_state(TIER), TIER, version="1")

    def keep(tick: RecordedTick, state: LearnedState) -> None:
        ledger.append(tick.observations, tick.plan, state, TIER, version="1")

    recorded_run(STORY, on_tick=keep)
    ledger.close()
    return path


@pytest.fixture(scope="module")
def rows(file: Path) -> tuple[RecordedTick, ...]:
    ledger = Ledger(file, read_only=True)
    found = tuple(ledger.ticks())
    ledger.close()
    return found


@contextmanager
def _running(*boards: TierBoard) -> Iterator[str]:
    """The API on a thread of its own; its address."""
    started, stop, found = threading.Event(), threading.Event(), [""]

    async def serve() -> None:
        async with Api(boards, ApiSettings(port=0)) as api:
            found[0] = api.address
            started.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(10.0)
        yield found[0]
    finally:
        stop.set()
        thread.join(10.0)


def _numbers(value: Any) -> Iterator[float]:
    """Every number in a document, however deep."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _numbers(part)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _numbers(getattr(value, field.name))
    else:
        for part in value:
            yield from _numbers(part)


def _recorded_numbers(tick: RecordedTick) -> set[float]:
    """Every number of a ledger's row and of its settings."""
    parts = (dump_plan(tick.plan), dump_observations(tick.observations), dump_settings(TIER))
    return {number for part in parts for number in _numbers(json.loads(part))}


def _as_said(number: float) -> set[str]:
    """The ways in which a sentence may write a recorded number."""
    return {
        f"{number:,.0f}",
        f"{number:.0f}",
        f"{number:g}",
        f"{number:.2f}",
        f"{number:.0%}",
        f"{number:.1%}",
        f"{number:.2%}",
        f"{number * 1000:.0f}",
        f"{number * 1000:.1f}",
        f"{number * 1000:g}",
    }


def test_every_number_of_an_explanation_stands_in_its_ledger_row(
    file: Path, rows: tuple[RecordedTick, ...]
) -> None:
    source, told = watched(file, None, None), 0
    for tick in rows:
        known = _recorded_numbers(tick)
        ages = {tick.at_s - s.observed_at_s for s in tick.newest.pools}
        for pool in ("prefill", "decode"):
            found = dict(source.why(pool, tick.epoch))
            numbers = list(_numbers(found))

            assert [n for n in numbers if n not in known | ages] == []
            told += len(numbers)
    assert told > 10_000


def test_every_number_in_the_sentences_stands_in_the_ledger_row(
    file: Path, rows: tuple[RecordedTick, ...]
) -> None:
    source, told = watched(file, None, None), 0
    for tick in rows:
        known = _recorded_numbers(tick)
        derived = {FLOOR.until_s - tick.at_s}  # how long a person's word still holds
        derived |= {d.replicas - 1 for d in tick.plan.decisions if d.replicas is not None}
        derived |= {
            d.forecast.lead_s - TIER.tick_s for d in tick.plan.decisions if d.forecast is not None
        }  # a start-up: the down window, where it is the longer
        derived.add(1.0 - TIER.slo.attainment_ratio)
        said = {text for number in known | derived for text in _as_said(number)}
        for pool in ("prefill", "decode"):
            found = source.why(pool, tick.epoch)
            own_words = " ".join(d.words for d in tick.plan.decisions)
            own_words += " ".join(c.words for d in tick.plan.decisions for c in d.counterfactuals)
            sentence = f"{found['verdict']} {found['what_would_change']}"
            texts = re.findall(r"\d[\d,]*(?:\.\d+)?%?", sentence)

            strange = [t for t in texts if t.rstrip(",") not in said and t not in own_words]
            assert strange == [], sentence
            told += len(texts)
    assert told > 1000


def test_the_api_says_what_the_ledger_says(file: Path, rows: tuple[RecordedTick, ...]) -> None:
    ledger = Ledger(file)
    with _running(TierBoard(TIER, mode="recorded", ledger=ledger)) as address:
        running, recorded = watched(None, address, None), watched(file, None, None)

        assert running.view() == recorded.view()
        for tick in rows[::9]:
            for pool in ("prefill", "decode"):
                assert running.why(pool, tick.epoch) == recorded.why(pool, tick.epoch)
    ledger.close()


def test_a_live_board_says_what_its_ledger_will(file: Path, rows: tuple[RecordedTick, ...]) -> None:
    board = TierBoard(TIER, mode="recorded")
    for tick in rows:
        board.note(tick.plan, tick.observations)

    assert json.loads(board.view_json()) == watched(file, None, None).view()


def test_what_people_asked_for_is_replayed_to_the_same_plans(
    file: Path, rows: tuple[RecordedTick, ...]
) -> None:
    floored = [t.epoch for t in rows if decision_in(t, "decode").reason == "Floored"]
    ledger = Ledger(file, read_only=True)

    assert floored
    assert [tick for tick in replay(ledger) if tick.differences] == []
    ledger.close()


NEW_FIELDS = ("counterfactuals", "override", "overrides", "work")


def _without_new_fields(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_new_fields(v) for k, v in value.items() if k not in NEW_FIELDS}
    return [_without_new_fields(each) for each in value] if isinstance(value, list) else value


def test_a_ledger_from_before_counterfactuals_is_read_explained_and_replayed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "old.sqlite"
    ledger = Ledger(path)
    ledger.begin(new_state(TIER), TIER, version="1")
    recorded_run(
        [Load()] * 20,
        on_tick=lambda t, s: ledger.append(t.observations, t.plan, s, TIER, version="1"),
    )
    ledger.close()
    db = sqlite3.connect(path)
    for epoch, *blobs in db.execute("SELECT epoch, observations, plan FROM ticks").fetchall():
        old = [
            zlib.compress(json.dumps(_without_new_fields(json.loads(zlib.decompress(b)))).encode())
            for b in blobs
        ]
        db.execute("UPDATE ticks SET observations = ?, plan = ? WHERE epoch = ?", (*old, epoch))
    db.commit()
    db.close()

    source = watched(path, None, None)
    again = Ledger(path, read_only=True)
    assert source.why("decode", 20)["counterfactuals"] == []
    assert source.why("decode", 20)["verdict"].startswith("decode ")
    assert source.view()["history"]["provided"]["output_tokens_per_s"][-1] > 0.0
    assert [tick for tick in replay(again) if tick.differences] == []
    again.close()


def _printed(renderable: Any, width: int = 160) -> str:
    out = StringIO()
    Console(file=out, width=width).print(renderable)
    return out.getvalue()


def test_the_terminal_shows_verdict_needs_steps_sizes_and_inputs(file: Path) -> None:
    found = watched(file, None, None).why("decode", 55)
    text = _printed(explanation(found), width=2000)

    assert found["verdict"] in text
    assert found["what_would_change"] in text
    for need in found["needs"]:
        assert need["words"] in text
    for each in found["counterfactuals"]:
        assert each["words"] in text
        assert f"{each['utilisation_ratio']:.1%}" in text
    assert [row["name"] for row in found["inputs"] if row["name"] not in text] == []


@pytest.mark.parametrize("width", [40, 80, 160])
def test_no_word_is_cut_off_however_narrow_the_terminal(file: Path, width: int) -> None:
    found = watched(file, None, None).why("prefill", 70)

    assert "…" not in _printed(explanation(found), width)
    assert "…" not in _printed(screen(watched(file, None, None).view(), width=width), width)


def test_what_is_not_known_is_said_to_be_unknown(
    file: Path, rows: tuple[RecordedTick, ...]
) -> None:
    dark = next(t for t in rows if decision_in(t, "prefill").reason == "DemandUnknown")
    text = _printed(explanation(watched(file, None, None).why("prefill", dark.epoch)))

    assert re.search(r"demand\.prefill_tokens_per_s +unknown", text)
    assert re.search(r"Forecast\n +unknown", text)


def test_every_pool_is_explained_where_none_is_named(file: Path) -> None:
    out = StringIO()
    print_explanations(watched(file, None, None), None, None, Console(file=out, width=160))

    assert "demo/prefill" in out.getvalue()
    assert "demo/decode" in out.getvalue()


def test_the_command_prints_json_that_is_the_explanation(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", "decode", "--ledger", str(file), "--epoch", "7", "--json"])

    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out) == watched(file, None, None).why("decode", 7)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["explain", "nobody"], 2, "no such pool: found nobody, expected prefill or decode"),
        (["explain", "decode", "--epoch", "9999"], 3, "has no tick 9999"),
        (["explain", "--url", "http://127.0.0.1:9"], 2, "--ledger, --url: one place to look at"),
    ],
)
def test_what_cannot_be_explained_is_one_sentence(
    file: Path,
    arguments: list[str],
    code: int,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--ledger", str(file)])

    assert ended.value.code == code
    assert sentence in capsys.readouterr().err


def test_a_ledger_that_is_not_there_and_an_address_that_is_none_are_said(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="there is no ledger"):
        watched(tmp_path / "none.sqlite", None, None)
    with pytest.raises(Misconfigured, match="not an address"):
        watched(None, "localhost:9321", None)


@pytest.mark.parametrize("command", [["explain"], ["top", "--once"]])
@pytest.mark.parametrize("of_run", [False, True])
def test_where_no_demo_was_played_the_other_ledger_and_its_option_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    of_run: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    if of_run:
        Ledger(Path("out/phasewise.sqlite")).close()
    with pytest.raises(SystemExit) as ended:
        main(command)
    said = capsys.readouterr().err

    assert ended.value.code == 2
    assert "out/demo.sqlite" in said
    assert "--ledger FILE" in said
    assert ("out/phasewise.sqlite" in said) == of_run


@pytest.mark.parametrize(
    ("at_s", "said"),
    [
        (0.0, "minute 0.0"),
        (738.0, "minute 12.3"),
        (86_400.0, "minute 1440.0"),
        (1_795_999_511.0, "2026-11-30T00:45:11Z"),
    ],
)
def test_a_time_is_a_minute_of_the_run_or_a_time_of_the_world(at_s: float, said: str) -> None:
    assert when(at_s) == said
    found = {"tier": "t", "pool": "p", "phase": "decode", "epoch": 5, "at_s": at_s}
    found |= {"before": 1, "after": 2, "verdict": "v", "what_would_change": "w", "forecast": None}
    empty: dict[str, Any] = dict.fromkeys(("needs", "steps", "counterfactuals", "inputs"), ())
    assert f"tick 5 at {said}: 1 -> 2 replicas" in _printed(explanation({**found, **empty}))


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (12.0, "requests", "12 requests"),
        (12.34, "requests", "12.3 requests"),
        (0.25, "requests", "0.25 requests"),
        (123.456, "tokens", "123 tokens"),
        (45_678.9, "tokens/s", "45,679 tokens/s"),
        (4.5678e9, "bytes/s", "4.57 GB/s"),
        (45.678e6, "bytes/s", "45.7 MB/s"),
        (0.0, "bytes/s", "0.00 B/s"),
        (0.0123, "s", "12.3 ms"),
        (None, "bytes/s", "unknown"),
    ],
)
def test_an_input_has_no_more_digits_than_it_means(
    value: float | None, unit: str, said: str
) -> None:
    assert measured(value, unit) == said


@given(st.floats(0.0, 1e13), st.sampled_from(["requests", "tokens", "tokens/s", "bytes/s", ""]))
def test_what_is_said_of_an_input_is_its_value_to_two_digits(value: float, unit: str) -> None:
    text, _, of_unit = measured(value, unit).partition(" ")
    scale = {"GB/s": 1e9, "MB/s": 1e6, "kB/s": 1e3}.get(of_unit, 1.0)

    assert float(text.replace(",", "")) * scale == pytest.approx(value, rel=0.006, abs=0.0051)


def test_a_tier_that_is_not_there_or_has_no_tick_is_said() -> None:
    with _running(TierBoard(TIER, mode="act")) as address:
        with pytest.raises(Unavailable, match="has no tick yet"):
            watched(None, address, None).view()
        with pytest.raises(Unavailable, match="there is no tier 'x'"):
            watched(None, address, "x").view()


def test_of_several_tiers_one_must_be_named(rows: tuple[RecordedTick, ...]) -> None:
    boards = [TierBoard(replace(TIER, name=name), mode="act") for name in ("one", "two")]
    for board in boards:
        board.note(rows[0].plan, rows[0].observations)
    with _running(*boards) as address:
        with pytest.raises(Misconfigured, match="expected one or two"):
            watched(None, address, None).view()

        assert watched(None, address, "two").view()["epoch"] == 1


def test_top_draws_the_tier_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["top", "--once", "--ledger", str(file)])
    text = capsys.readouterr().out

    assert ended.value.code == 0
    for word in ("prefill", "decode", "scale targets", "prefill:decode demanded", "ready over"):
        assert word in text


def test_top_draws_again_what_a_growing_ledger_adds(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    ledger = Ledger(path)
    ledger.begin(new_state(TIER), TIER, version="1")
    waiting: list[tuple[RecordedTick, LearnedState]] = []
    recorded_run([Load()] * 3, on_tick=lambda tick, state: waiting.append((tick, state)))
    out = StringIO()

    def add_one(_: float) -> None:
        if waiting:
            tick, state = waiting.pop(0)
            ledger.append(tick.observations, tick.plan, state, TIER, version="1")

    watch(
        watched(path, None, None),
        Console(file=out, width=160, force_terminal=True),
        once=False,
        wait=add_one,
        rounds=4,
    )
    ledger.close()

    assert f"{path} has no tick yet" in out.getvalue()
    assert [f"tick {n} at" in out.getvalue() for n in (1, 2, 3)] == [True] * 3


def test_top_shows_a_persons_word_and_how_long_it_still_holds(file: Path) -> None:
    rows = [replace(Load(), overrides=(replace(FLOOR, until_s=100.0),))] * 2
    board = TierBoard(TIER, mode="act")
    for tick in recorded_run(rows):
        board.note(tick.plan, tick.observations)
        board.overrides.put(tick.newest.overrides[0])

    assert "[floor 12 by ann, 70 s left]" in _printed(
        screen(json.loads(board.view_json()), width=400), 400
    )


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([0.0, 4.0, 8.0], "▁▅█"),
        ([None, 8.0], " █"),
        ([0.0, 0.0], "▁▁"),
        ([], ""),
        ([1.0, 2.0, 3.0, 4.0], "▆█"),
    ],
)
def test_a_sparkline_starts_at_zero_and_leaves_gaps(values: list[float | None], drawn: str) -> None:
    assert sparkline(values, 3 if len(values) < 4 else 2) == drawn


@given(st.lists(st.one_of(st.none(), st.floats(0.0, 1e12)), max_size=80), st.integers(1, 60))
def test_a_sparkline_has_one_sign_for_each_value_shown(
    values: list[float | None], width: int
) -> None:
    drawn = sparkline(values, width)

    assert len(drawn) == min(width, len(values))
    shown = values[-width:]
    assert [sign == " " for sign in drawn] == [value is None for value in shown]


@pytest.mark.parametrize(
    ("at_s", "now_s", "said"),
    [
        pytest.param(1.8e9, 1.8e9 + 12.0, "12 s ago", id="fresh"),
        pytest.param(1.8e9, 1.8e9 + 120.0, "120 s ago: stale", id="stale"),
        pytest.param(900.0, 1.8e9, "", id="virtual"),
        pytest.param(1.8e9, None, "", id="no-clock"),
    ],
)
def test_top_says_how_old_its_newest_tick_is(at_s: float, now_s: float | None, said: str) -> None:
    from phasewise.topping import _age

    found = _age({"at_s": at_s, "tick_s": 15.0}, now_s).plain

    assert found.strip() == said
