"""The console's API, asked by a real client over loopback."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from autoscaler.ledger import Ledger
from autoscaler.recorded import RecordedTick
from autoscaler.state import LearnedState, new_state
from autoscaler.testing import TIER, Load, decision_in, recorded_run
from dashboards.plotly_js import plotly_js_file
from phasewise.api import Api, ApiSettings
from phasewise.console import console_of
from phasewise.overrides import OverriddenSource
from phasewise.settings import ConsoleSettings
from phasewise.tier_board import TierBoard
from serving.errors import Misconfigured
from serving.testing import make_observation
from serving.types import Observation

TICKS = recorded_run([Load(scale=s) for s in (1.0, 1.0, 2.0)])
TOKEN = "correct horse"
AUTHORISED = {"Authorization": f"Bearer {TOKEN}"}
PIN = {"kind": "pin", "pool": "decode", "replicas": 9, "for_s": 600, "by": "ann"}
OVERRIDES = "/api/v1/tiers/demo/overrides"


class StillSource:
    """A source that sees nothing; only its time moves."""

    async def observe(self, now_s: float) -> Observation:
        return make_observation(at_s=now_s)


def _board(ticks: tuple[RecordedTick, ...] = TICKS, **changes: Any) -> TierBoard:
    board = TierBoard(TIER, mode="act", **changes)
    for tick in ticks:
        board.note(tick.plan, tick.observations)
    return board


async def _look(board: TierBoard, now_s: float) -> Observation:
    """What the loop does: one look through the board's overrides."""
    return await OverriddenSource(StillSource(), board.overrides).observe(now_s)


@asynccontextmanager
async def _serving(
    *boards: TierBoard, **changes: Any
) -> AsyncIterator[tuple[Api, aiohttp.ClientSession]]:
    async with (
        Api(boards, ApiSettings(port=0, **changes)) as api,
        aiohttp.ClientSession(base_url=api.address) as session,
    ):
        yield api, session


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


async def _get(path: str, *boards: TierBoard, **changes: Any) -> tuple[int, Any]:
    async with _serving(*boards, **changes) as (_, session), session.get(path) as answer:
        text = await answer.text()
        is_json = answer.content_type == "application/json"
        return answer.status, json.loads(text) if is_json else text


async def test_tiers_are_listed_with_their_last_tick() -> None:
    fresh = TierBoard(replace(TIER, name="young"), mode="advise")

    assert await _get("/api/v1/tiers", _board(), fresh) == (
        200,
        [
            {"name": "demo", "mode": "act", "at_s": 45.0, "epoch": 3},
            {"name": "young", "mode": "advise", "at_s": None, "epoch": None},
        ],
    )


async def test_the_view_is_that_of_the_ticks() -> None:
    status, found = await _get("/api/v1/tiers/demo/view", _board())

    assert status == 200
    assert (found["tier"], found["epoch"], found["mode"]) == ("demo", 3, "act")
    assert found["history"]["at_s"] == [15.0, 30.0, 45.0]
    assert [pool["name"] for pool in found["pools"]] == ["prefill", "decode"]


async def test_why_is_asked_of_the_newest_tick_or_of_an_older_one() -> None:
    _, newest = await _get("/api/v1/tiers/demo/why?pool=decode", _board())
    _, first = await _get("/api/v1/tiers/demo/why?pool=decode&epoch=1", _board())

    assert (newest["epoch"], first["epoch"]) == (3, 1)
    assert newest["after"] == decision_in(TICKS[2], "decode").replicas
    assert newest["verdict"].startswith("decode ")


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/api/v1/tiers/other/view", 404, "there is no tier 'other' here; there is: demo"),
        ("/api/v1/tiers/demo/why", 400, "which pool? ask with ?pool=NAME"),
        ("/api/v1/tiers/demo/why?pool=x", 404, "tier demo has no pool 'x'"),
        ("/api/v1/tiers/demo/why?pool=decode&epoch=-1", 400, "epoch must be a whole number"),
        ("/api/v1/tiers/demo/why?pool=decode&epoch=99", 404, "tier demo has no tick 99"),
        ("/static/../api.py", 404, "404: Not Found"),
        ("/static/%2e%2e/board.py", 404, "404: Not Found"),
        ("/metrics", 404, "there are no metrics here"),
    ],
)
async def test_a_fault_of_the_asker_is_a_status_and_a_sentence(
    path: str, status: int, sentence: str
) -> None:
    assert await _get(path, _board()) == (status, sentence)


async def test_before_the_first_tick_there_is_no_view_rather_than_an_empty_one() -> None:
    found = await _get("/api/v1/tiers/demo/view", TierBoard(TIER, mode="act"))

    assert found == (503, "tier demo has no tick yet")


async def test_the_page_its_files_plotly_metrics_and_health_are_served(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<!doctype html><title>console</title>")
    (tmp_path / "console.js").write_text("export {};")
    changes: dict[str, Any] = {"console_folder": tmp_path, "metrics": lambda: b"up 1\n"}

    assert await _get("/", **changes) == (200, "<!doctype html><title>console</title>")
    assert await _get("/static/console.js", **changes) == (200, "export {};")
    assert await _get("/metrics", **changes) == (200, "up 1\n")
    assert await _get("/healthz", **changes) == (200, "ok\n")
    file = plotly_js_file()
    assert file is not None
    status, text = await _get("/static/plotly.min.js", **changes)
    assert status == 200
    assert text == file.read_text()


async def test_no_answer_may_be_kept_guessed_at_or_framed() -> None:
    async with _serving(_board()) as (_, session):
        for path in ("/api/v1/tiers", "/api/v1/tiers/demo/view", "/nowhere"):
            async with session.get(path) as answer:
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Cache-Control"] == "no-store"
                assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


async def _event(stream: aiohttp.StreamReader) -> list[str]:
    """The lines of the next event or comment."""
    lines: list[str] = []
    while True:
        line = (await stream.readline()).decode().rstrip("\n")
        if not line:
            return lines
        lines.append(line)


async def test_the_stream_gives_the_view_at_once_and_again_after_every_tick() -> None:
    board = _board(TICKS[:2])
    async with (
        asyncio.timeout(10.0),
        _serving(board) as (_, session),
        session.get("/api/v1/tiers/demo/events") as answer,
    ):
        assert answer.content_type == "text/event-stream"
        first = await _event(answer.content)
        board.note(TICKS[2].plan, TICKS[2].observations)
        second = await _event(answer.content)

    assert first[0] == second[0] == "event: view"
    assert json.loads(first[1].removeprefix("data: "))["epoch"] == 2
    assert json.loads(second[1].removeprefix("data: "))["epoch"] == 3


async def test_a_quiet_stream_shows_that_it_lives_and_waits_for_the_first_tick() -> None:
    board = TierBoard(TIER, mode="act")
    async with (
        asyncio.timeout(10.0),
        _serving(board, heartbeat_s=0.02) as (_, session),
        session.get("/api/v1/tiers/demo/events") as answer,
    ):
        assert await _event(answer.content) == [": alive"]
        board.note(TICKS[0].plan, TICKS[0].observations)
        event = await _event(answer.content)
        while event == [": alive"]:
            event = await _event(answer.content)

    assert event[0] == "event: view"


async def test_an_open_stream_does_not_hold_up_the_end() -> None:
    board = _board()
    async with asyncio.timeout(10.0), aiohttp.ClientSession() as session:
        async with Api([board], ApiSettings(port=0)) as api:
            answer = await session.get(f"{api.address}/api/v1/tiers/demo/events")
            await _event(answer.content)
        rest = await answer.content.read()
        answer.close()

    assert rest == b""


async def test_an_override_is_taken_shown_seen_by_the_loop_and_taken_back(
    token_file: Path,
) -> None:
    board = _board()
    await _look(board, 45.0)
    async with _serving(board, token_file=token_file) as (_, session):
        async with session.post(OVERRIDES, json=PIN, headers=AUTHORISED) as answer:
            assert answer.status == 200
            taken = await answer.json()
        async with session.get("/api/v1/tiers/demo/view") as answer:
            pools = {p["name"]: p["override"] for p in (await answer.json())["pools"]}
        seen = (await _look(board, 50.0)).overrides
        async with session.delete(f"{OVERRIDES}/decode", headers=AUTHORISED) as answer:
            dropped = await answer.json()
        async with session.delete(f"{OVERRIDES}/decode", headers=AUTHORISED) as answer:
            again = await answer.json()

    wanted = {"kind": "pin", "replicas": 9, "until_s": 645.0, "by": "ann"}
    assert taken == {**wanted, "pool": "decode"}
    assert pools == {"prefill": None, "decode": wanted}
    assert [(o.pool, o.replicas, o.until_s) for o in seen] == [("decode", 9, 645.0)]
    assert (dropped["dropped"], again["dropped"]) == (True, False)
    assert (await _look(board, 55.0)).overrides == ()


async def test_an_override_is_forgotten_at_its_time() -> None:
    board = _board()
    async with _serving(board):
        board.overrides.put(replace(_pinned(), until_s=100.0))

    assert len((await _look(board, 99.9)).overrides) == 1
    assert (await _look(board, 100.0)).overrides == ()


def _pinned() -> Any:
    from phasewise.overrides import override_from

    return override_from(PIN, TIER, now_s=0.0)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 401, id="no-token"),
        pytest.param({"Authorization": "Bearer wrong"}, 401, id="wrong-token"),
        pytest.param({"Authorization": f"Basic {TOKEN}"}, 401, id="not-a-bearer"),
        pytest.param({"Authorization": "Bearer"}, 401, id="empty"),
        pytest.param({"Authorization": "Bearer caf\u00e9"}, 401, id="not-ascii"),
        pytest.param(AUTHORISED, 200, id="right"),
    ],
)
async def test_overrides_need_the_token(
    token_file: Path, headers: dict[str, str], status: int
) -> None:
    board = _board()
    await _look(board, 45.0)
    async with _serving(board, token_file=token_file) as (_, session):
        async with session.post(OVERRIDES, json=PIN, headers=headers) as answer:
            assert answer.status == status
            said = await answer.text()
        async with session.delete(f"{OVERRIDES}/decode", headers=headers) as answer:
            assert answer.status == status

    assert TOKEN not in said
    assert (board.overrides.known() == ()) or status == 200


async def test_without_a_token_file_nobody_may_override() -> None:
    board = _board()
    await _look(board, 45.0)
    async with (
        _serving(board) as (_, session),
        session.post(OVERRIDES, json=PIN, headers=AUTHORISED) as answer,
    ):
        assert answer.status == 403
        assert await answer.text() == ("overrides are off: the settings name no console.tokenFile")
    assert board.overrides.known() == ()


async def test_a_token_can_be_changed_and_taken_away_while_it_runs(token_file: Path) -> None:
    board = _board()
    await _look(board, 45.0)
    statuses = []
    async with _serving(board, token_file=token_file) as (_, session):
        for content in ("other", TOKEN, ""):
            token_file.write_text(content)
            async with session.post(OVERRIDES, json=PIN, headers=AUTHORISED) as answer:
                statuses.append(answer.status)

    assert statuses == [401, 200, 403]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"kind": "stop"},
            "kind: no such override: found 'stop', expected one of pause, pin, floor",
        ),
        ({"kind": ["pin"]}, "kind: no such override: found ['pin'], expected one of pause, pin"),
        ({"pool": "x"}, "pool: no such override: found 'x', expected one of prefill, decode"),
        ({"replicas": 51}, "found 51, expected a whole number from 2 to 50"),
        ({"replicas": True}, "found True, expected a whole number"),
        ({"replicas": 2.5}, "found 2.5, expected a whole number"),
        ({"replicas": None}, "found None, expected a whole number"),
        ({"kind": "pause"}, "replicas: no such override: found 9, expected nothing with a pause"),
        ({"for_s": 0}, "for_s: no such override: found 0, expected seconds, over 0 to 604800"),
        ({"for_s": 1e9}, "for_s: no such override"),
        ({"for_s": "600"}, "for_s: no such override"),
        ({"for_s": True}, "for_s: no such override"),
        ({"for_s": float("nan")}, "for_s: no such override: found nan"),
        ({"by": " "}, "by: no such override: found ' ', expected who asks"),
        ({"by": "a\nb"}, "by: no such override"),
        ({"by": "a" * 65}, "by: no such override"),
        ({"more": 1}, "more: no such override: found an unknown field"),
    ],
)
async def test_a_wrong_override_is_refused_with_one_sentence(
    token_file: Path, changes: dict[str, Any], sentence: str
) -> None:
    board = _board()
    await _look(board, 45.0)
    async with (
        _serving(board, token_file=token_file) as (_, session),
        session.post(OVERRIDES, json={**PIN, **changes}, headers=AUTHORISED) as answer,
    ):
        said = await answer.text()
        assert answer.status == 400

    assert sentence in said
    assert "\n" not in said
    assert board.overrides.known() == ()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"", 400, id="empty"),
        pytest.param(b"[]", 400, id="a-list"),
        pytest.param(b"{", 400, id="not-json"),
        pytest.param(b"\xff\xfe", 400, id="not-utf-8"),
        pytest.param(b"1" * 5000, 400, id="a-number-of-5000-digits"),
        pytest.param(b" " * 20_000, 413, id="too-long"),
    ],
)
async def test_a_body_that_is_none_is_refused(token_file: Path, body: bytes, status: int) -> None:
    board = _board()
    await _look(board, 45.0)
    async with (
        _serving(board, token_file=token_file) as (_, session),
        session.post(OVERRIDES, data=body, headers=AUTHORISED) as answer,
    ):
        assert answer.status == status


async def test_an_override_waits_for_the_first_look(token_file: Path) -> None:
    async with (
        _serving(_board(), token_file=token_file) as (_, session),
        session.post(OVERRIDES, json=PIN, headers=AUTHORISED) as answer,
    ):
        assert answer.status == 400
        assert "not looked at yet" in await answer.text()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
async def test_others_can_reach_it_only_with_a_token(host: str, token_file: Path) -> None:
    with pytest.raises(Misconfigured, match="for this machine alone"):
        Api((), ApiSettings(host=host))

    Api((), ApiSettings(host=host, token_file=token_file))


@pytest.mark.parametrize("content", ["", "  \n", None])
async def test_a_token_file_without_a_token_stops_the_start(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)

    with pytest.raises(Misconfigured, match="token"):
        Api((), ApiSettings(token_file=file))


async def test_a_port_that_is_taken_is_said_and_does_not_stop_the_loop() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Misconfigured, match=f"127.0.0.1:{port}"):
            await Api((), ApiSettings(port=port)).start()
        async with console_of(ConsoleSettings.model_validate({"port": port})) as show:
            show(_board())


async def test_a_tier_can_be_shown_while_it_runs() -> None:
    async with _serving() as (api, session):
        api.show(_board())
        async with session.get("/api/v1/tiers") as answer:
            assert [row["name"] for row in await answer.json()] == ["demo"]


async def test_after_a_restart_the_ledger_brings_back_ticks_and_overrides(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    ledger.begin(new_state(TIER), TIER, version="1")

    def keep(tick: RecordedTick, state: LearnedState) -> None:
        ledger.append(tick.observations, tick.plan, state, TIER, version="1")

    pinned = replace(_pinned(), until_s=1e5)
    count, shown = 9, 4
    recorded_run([Load(overrides=(pinned,))] * count, on_tick=keep)
    board = TierBoard(TIER, mode="act", ledger=ledger, shown_ticks=shown)

    assert (board.newest or TICKS[0]).epoch == count
    assert board.overrides.known() == (pinned,)
    assert len(json.loads(board.view_json())["history"]["at_s"]) == shown
    assert json.loads(board.why_json("decode", epoch=1) or b"{}")["epoch"] == 1
    board.let_go()
    ledger.close()
    status, said = await _get("/api/v1/tiers/demo/why?pool=decode&epoch=1", board)
    assert (status, said) == (404, "tier demo has no tick 1")
