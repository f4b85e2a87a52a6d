"""From scores to the report's charts: rates by minute, steps, gaps, and what was asked for."""

from __future__ import annotations

import pytest

from phasewise.comparison import Workload, load_workload
from phasewise.html_report import report_model
from phasewise.report_charts import good_chart, offered_charts, offered_per_s, replicas_chart
from phasewise.scoring import Score, score
from phasewise.tier_setup import simulation_plan
from serving.schema.tier import demo_tier_path, load_tier
from serving.simulation.traffic import Request


def score_of(policy: str = "phasewise", **changes: object) -> Score:
    outcome = {
        "now_s": 300.0,
        "requests": 10,
        "good_requests": 9,
        "finished_requests": 10,
        "ttft_missed_requests": 1,
        "itl_missed_requests": 0,
        "ttft_s": None,
        "mean_itl_s": None,
        "replica_seconds": {"prefill": 3600.0, "decode": 1800.0},
        "ready_timeline": {
            "prefill": [[0.0, 2], [150.0, 3], [200.0, 2]],
            "decode": [[0.0, 1]],
        },
        "minutes": [[4, 4], [0, 0], [6, 5]],
        **changes,
    }
    plan = simulation_plan(load_tier(demo_tier_path()))
    moves = [(30.0, "prefill", 1), (195.0, "prefill", -1)]
    return score(outcome, plan.pools, policy=policy, changes=moves)


def test_offered_tokens_are_rates_of_each_minute_and_of_a_cut_last_one() -> None:
    requests = [Request(0.0, 600, 60), Request(59.9, 600, 0), Request(90.0, 300, 30)]

    assert offered_per_s(requests) == [(0.0, 20.0, 1.0), (1.0, 10.0, 1.0)]


def test_a_last_piece_too_short_for_a_rate_is_left_out() -> None:
    requests = [Request(0.0, 600, 60), Request(65.0, 9000, 9000)]
    chart = offered_charts(requests, 120.0)[0]

    assert offered_per_s(requests) == [(0.0, 10.0, 1.0)]
    assert chart.lines[0].points == ((0.0, 10.0), (1.0, 10.0))
    assert chart.numbers.rows == (("0", "10"),)


def test_a_minute_without_requests_has_no_share_of_good_ones() -> None:
    chart = good_chart([score_of()], 300.0)

    assert chart.lines[0].points == ((0.0, 1.0), (1.0, None), (2.0, 5 / 6), (3.0, 5 / 6))
    assert chart.numbers.rows == (("0", "100.00%"), ("1", "-"), ("2", "83.33%"))


def test_what_phasewise_asked_for_leads_what_is_ready() -> None:
    chart = replicas_chart([score_of(), score_of("last_value")], "prefill", 300.0)
    ready, asked, other = chart.lines

    assert (ready.name, asked.name, other.name) == (
        "phasewise",
        "phasewise, asked for",
        "last_value",
    )
    assert ready.points == other.points == ((0.0, 2), (2.5, 3), (200 / 60, 2), (5.0, 2))
    assert asked.points == ((0.0, 2), (0.5, 3), (3.25, 2), (5.0, 2))
    assert (ready.colour, asked.colour) == (0, 0)
    assert other.colour != 0
    assert chart.numbers.rows[3] == ("3", "3", "3", "3")
    assert chart.numbers.rows[4] == ("4", "2", "2", "2")


def test_a_tier_that_tells_no_minutes_still_has_a_row() -> None:
    row = score_of(minutes=[])

    assert row.minutes == []
    assert good_chart([row], 300.0).lines[0].points == ()


@pytest.fixture
def workload(tmp_path) -> Workload:
    file = tmp_path / "t.csv"
    file.write_text("t_s,input_tokens,output_tokens\n0,500,50\n200,500,50\n")
    return Workload(tier_file=demo_tier_path(), trace=str(file), volume=1.0, seed=3)


@pytest.mark.parametrize(
    ("policy", "enough"), [("phasewise", "as much as phasewise"), ("last_value", "99%")]
)
def test_a_report_says_what_peers_were_matched_to(
    workload: Workload, policy: str, enough: str
) -> None:
    model = report_model(workload, load_workload(workload), [score_of(policy)])
    notes = dict(model.notes)

    assert f"attains {enough} is shown" in notes["What the policies know"]
    assert "2.5 s" in notes["A good request"]
    assert "50 ms" in notes["A good request"]


def test_a_report_lists_every_figure_of_the_profiles_it_played(workload: Workload) -> None:
    loaded = load_workload(workload)
    (table,) = report_model(workload, loaded, [score_of()]).details
    (profile,) = {
        pool.profile.name: pool.profile for pool in simulation_plan(loaded.tier).pools
    }.values()

    assert [row[0] for row in table.rows] == list(profile.figures)
    assert [row[2:] for row in table.rows] == [(f.tag, f.source) for f in profile.figures.values()]
    assert [float(row[1]) for row in table.rows] == pytest.approx(
        [f.value for f in profile.figures.values()], rel=1e-5
    )
