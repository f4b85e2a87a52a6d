"""`phasewise backtest`: which policies it is asked for, and its table, JSON and HTML."""

from __future__ import annotations

import json
import random
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from dashboards import report
from phasewise.backtest_report import BacktestRequest, choices_of, run_backtests
from phasewise.backtesting import PolicyChoice
from phasewise.table import cells, headings
from serving.errors import Misconfigured


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("phasewise", [PolicyChoice(name="phasewise")]),
        ("last_value:0.2", [PolicyChoice(name="last_value", headroom_ratio=0.2)]),
        ("last_value:-0.1", [PolicyChoice(name="last_value", headroom_ratio=-0.1)]),
        ("pinned_ratio:0", [PolicyChoice(name="pinned_ratio", headroom_ratio=0.0)]),
        (
            "best_static:12x10",
            [PolicyChoice(name="best_static", prefill_replicas=12, decode_replicas=10)],
        ),
        (
            " static_peak , phasewise",
            [PolicyChoice(name="static_peak"), PolicyChoice(name="phasewise")],
        ),
    ],
)
def test_policies_come_with_their_knob_in_the_order_asked(
    text: str, expected: list[PolicyChoice]
) -> None:
    assert choices_of(text) == tuple(expected)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "''"),
        ("phasewize", "'phasewize'"),
        ("phasewise,", "''"),
        ("phasewise:0.2", "'phasewise:0.2'"),
        ("last_value:much", "'last_value:much'"),
        ("last_value:nan", "'last_value:nan'"),
        ("last_value:-0.95", "'last_value:-0.95'"),
        ("last_value:11", "'last_value:11'"),
        ("best_static:12", "'best_static:12'"),
        ("best_static:0x3", "'best_static:0x3'"),
        ("best_static:1x2x3", "'best_static:1x2x3'"),
        ("last_value,last_value:0.3", "'last_value,last_value:0.3'"),
    ],
)
def test_a_policy_that_cannot_be_played_is_named(text: str, found: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        choices_of(text)

    assert caught.value.where == "--policy"
    assert caught.value.found == found


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Six minutes of a request a second, give or take."""
    rng = random.Random(7)
    file = tmp_path / "tiny.csv"
    times = sorted(rng.uniform(0.0, 360.0) for _ in range(360))
    rows = [f"{t:.3f},{rng.randint(50, 900)},{rng.randint(5, 60)}" for t in times]
    file.write_text("\n".join(["t_s,input_tokens,output_tokens", *rows]) + "\n")
    return file


def test_a_backtest_tells_the_same_in_table_json_and_html(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    shown = StringIO()
    rows = run_backtests(
        BacktestRequest(
            trace=str(trace),
            policies="last_value:0.2,phasewise,best_static:1x1",
            volume="1",
            from_s=60.0,
            to_s=300.0,
            json_file=out / "b.json",
            html_file=out / "b.html",
        ),
        Console(file=shown, width=200),
    )
    document = json.loads((out / "b.json").read_text())
    html = (out / "b.html").read_text("utf-8").replace("\u00a0", " ")
    visible = html.split("<script>")[0]

    assert [row.policy for row in rows] == ["last_value", "phasewise", "best_static"]
    assert list(document["policies"]) == ["last_value", "phasewise", "best_static"]
    assert document["window_s"]["from"] == 60.0
    assert 290.0 < document["window_s"]["to"] <= 300.0
    for row in rows:
        policy = document["policies"][row.policy]
        assert policy["goodput_requests"] == row.good_requests == sum(g for _, g in row.minutes)
        assert row.requests == sum(arrived for arrived, _ in row.minutes)
        assert not {"minutes", "ready_timeline", "wanted_timeline"} & set(policy)
        for cell in (*headings(rows), *cells(row)):
            assert cell in shown.getvalue()
            assert f">{cell}<" in visible
    assert len(rows[0].minutes) == 4
    assert rows[2].sizes == {"prefill": 1, "decode": 1}
    assert rows[2].ready_timeline == {"prefill": [(0.0, 1)], "decode": [(0.0, 1)]}
    assert visible.count('<div class="plot') == 6


def test_a_missing_extra_is_told_before_anything_is_played(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    asked = BacktestRequest(trace="no such trace", html_file=tmp_path / "b.html")

    with pytest.raises(Misconfigured, match="plotly"):
        run_backtests(asked, Console(file=StringIO()))


def test_a_window_without_requests_is_refused(trace: Path) -> None:
    asked = BacktestRequest(trace=str(trace), from_s=400.0)

    with pytest.raises(Misconfigured, match="--from, --to"):
        run_backtests(asked, Console(file=StringIO()))
