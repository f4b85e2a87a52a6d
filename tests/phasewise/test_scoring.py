"""What a run achieved: step functions, actions, and a row from a tier's own account."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.types import Decision, Plan, Reason
from phasewise.comparison import comparison_json
from phasewise.scoring import (
    REVERSAL_WINDOW_S,
    Spread,
    actions_and_reversals,
    changes_of,
    replica_window,
    score,
    spread_over_time,
    sum_timelines,
)
from phasewise.table import cells, comparison_table, notes
from phasewise.tier_setup import simulation_plan
from serving.schema.tier import demo_tier_path, load_tier
from serving.testing import DECODE, PREFILL

Timeline = list[tuple[float, int]]


def spread(*values: float) -> Spread:
    least, p10, mean, p90, most = values
    return Spread(min=least, p10=p10, mean=mean, p90=p90, max=most)


@pytest.mark.parametrize(
    ("timeline", "window", "expected"),
    [
        pytest.param([(0.0, 3)], (0.0, 60.0), spread(3, 3, 3.0, 3, 3), id="constant"),
        pytest.param([(0.0, 2), (50.0, 4)], (0.0, 100.0), spread(2, 2, 3.0, 4, 4), id="half"),
        pytest.param([(0.0, 2), (95.0, 9)], (0.0, 100.0), spread(2, 2, 2.35, 2, 9), id="short"),
        pytest.param([(0.0, 9), (5.0, 2)], (0.0, 100.0), spread(2, 2, 2.35, 2, 9), id="any-order"),
        pytest.param([(0.0, 2), (50.0, 4)], (60.0, 100.0), spread(4, 4, 4.0, 4, 4), id="later"),
        pytest.param([(0.0, 2), (50.0, 4)], (0.0, 50.0), spread(2, 2, 2.0, 2, 2), id="earlier"),
        pytest.param([(0.0, 1), (0.0, 2)], (0.0, 10.0), spread(2, 2, 2.0, 2, 2), id="at-once"),
        pytest.param([(0.0, 3)], (600.0, 300.0), None, id="too-short-a-run"),
        pytest.param([], (0.0, 60.0), None, id="nothing"),
    ],
)
def test_a_spread_weighs_each_value_by_how_long_it_held(
    timeline: Timeline, window: tuple[float, float], expected: Spread | None
) -> None:
    found = spread_over_time(timeline, from_s=window[0], to_s=window[1])

    if expected is None or found is None:
        assert found is expected
    else:
        assert asdict(found) == pytest.approx(asdict(expected))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param([], (0, 0), id="none"),
        pytest.param([(0.0, "a", 2), (15.0, "a", 1)], (2, 0), id="same-direction"),
        pytest.param([(0.0, "a", 2), (15.0, "a", -1)], (2, 1), id="taken-back"),
        pytest.param([(0.0, "a", 1), (REVERSAL_WINDOW_S, "a", -1)], (2, 1), id="just-within"),
        pytest.param([(0.0, "a", 1), (REVERSAL_WINDOW_S + 1, "a", -1)], (2, 0), id="long-after"),
        pytest.param([(0.0, "a", 1), (15.0, "b", -1)], (2, 0), id="two-pools"),
        pytest.param(
            [(0.0, "a", 1), (15.0, "a", -1), (30.0, "a", 1), (45.0, "a", -1)], (4, 3), id="flaps"
        ),
    ],
)
def test_a_reversal_undoes_a_change_of_the_last_ten_minutes(
    changes: list[tuple[float, str, int]], expected: tuple[int, int]
) -> None:
    assert actions_and_reversals(changes) == expected


TIMELINES = st.lists(
    st.lists(st.tuples(st.integers(1, 50).map(float), st.integers(0, 9)), max_size=6).map(
        lambda points: [(0.0, 1), *sorted(points, key=lambda point: point[0])]
    ),
    min_size=1,
    max_size=4,
)


def value_at(timeline: Timeline, at_s: float) -> int:
    return [replicas for since_s, replicas in timeline if since_s <= at_s][-1]


@given(TIMELINES, st.integers(0, 60))
def test_the_sum_of_timelines_is_at_any_time_the_sum_of_their_values(
    timelines: list[Timeline], second: int
) -> None:
    at_s = second + 0.5
    last = [
        [(s, [n for t, n in timeline if t == s][-1]) for s, _ in timeline] for timeline in timelines
    ]

    assert value_at(sum_timelines(last), at_s) == sum(value_at(each, at_s) for each in last)


def test_several_changes_at_one_instant_sum_to_the_last_of_each() -> None:
    assert sum_timelines([[(0.0, 2), (5.0, 3)], [(0.0, 1), (5.0, 4)]])[-1] == (5.0, 7)
    assert sum_timelines([[(0.0, 2)]]) == [(0.0, 2)]


def decision(replicas: int | None, *, prefill: bool = True) -> Decision:
    pool = PREFILL if prefill else DECODE
    return Decision(pool=pool, replicas=replicas, hold=False, reason=Reason.WITHIN_NEED, words="")


@pytest.mark.parametrize(
    ("replicas", "present", "expected"),
    [
        (5, {"prefill": 3}, [(30.0, "prefill", 2)]),
        (2, {"prefill": 3}, [(30.0, "prefill", -1)]),
        (3, {"prefill": 3}, []),
        (None, {"prefill": 3}, []),
        (3, {"prefill": None}, []),
        (3, {}, []),
    ],
)
def test_a_change_is_what_differs_from_what_was_asked_for(
    replicas: int | None, present: dict[str, int | None], expected: list[tuple[float, str, int]]
) -> None:
    plan = Plan(
        tier="demo", epoch=1, at_s=30.0, policy="phasewise", decisions=(decision(replicas),)
    )

    assert changes_of(plan, present) == expected


def test_a_row_counts_every_provisioned_accelerator_and_every_request() -> None:
    tier = load_tier(demo_tier_path())
    pools = simulation_plan(tier).pools
    wide = (replace(pools[0], accelerators_per_replica=4), pools[1])
    outcome = {
        "now_s": 3600.0,
        "requests": 200,
        "good_requests": 150,
        "finished_requests": 190,
        "ttft_missed_requests": 30,
        "itl_missed_requests": 20,
        "ttft_s": {"p50": 0.5, "p99": 2.0},
        "mean_itl_s": None,
        "replica_seconds": {"prefill": 3600.0, "decode": 7200.0},
        "ready_timeline": {"prefill": [(0.0, 1)], "decode": [(0.0, 2), (1800.0, 4)]},
    }
    changes = [(15.0, "decode", 2), (30.0, "decode", -1)]
    row = score(outcome, wide, policy="p", changes=changes, headroom_ratio=0.2)

    assert row.attainment_ratio == 0.75
    assert (row.ttft_missed_ratio, row.itl_missed_ratio) == (0.15, 0.10)
    assert row.accelerator_hours == {"prefill": 4.0, "decode": 2.0}
    assert row.total_hours == 6.0
    assert (row.scaling_actions, row.reversals) == (2, 1)
    assert row.replicas["prefill"] == spread(1, 1, 1.0, 1, 1)
    decode = row.replicas["decode"]
    assert decode is not None
    assert decode.mean == pytest.approx((1200 * 2 + 1500 * 4) / 2700)
    assert row.replicas_window_s == (600.0, 3300.0)
    assert row.unfinished_requests == 10
    assert row.ttft_s == {"p50": 0.5, "p99": 2.0}
    assert row.itl_s == {"p50": None, "p99": None}


def test_a_tier_without_requests_attains_nothing() -> None:
    tier = load_tier(demo_tier_path())
    pools = simulation_plan(tier).pools
    outcome = {
        "now_s": 0.0,
        "requests": 0,
        "good_requests": 0,
        "finished_requests": 0,
        "ttft_missed_requests": 0,
        "itl_missed_requests": 0,
        "ttft_s": None,
        "mean_itl_s": None,
        "replica_seconds": {"prefill": 0.0, "decode": 0.0},
        "ready_timeline": {"prefill": [(0.0, 0)], "decode": [(0.0, 0)]},
    }

    row = score(outcome, pools, policy="p", changes=[])
    document = comparison_json([row], trace="t", slo=tier.slo, seed=1)

    assert row.attainment_ratio == 0.0
    assert row.replicas == {"prefill": None, "decode": None}
    assert document["replicas_window_s"] == [600.0, 3300.0]
    assert document["policies"]["p"]["replicas"] == {"prefill": None, "decode": None}
    assert document["policies"]["p"]["unfinished_requests"] == 0
    assert notes([row]) is None


@pytest.mark.parametrize(
    ("end_s", "expected"),
    [
        (420.0, (600.0, 3300.0)),
        (600.0, (600.0, 3300.0)),
        (1800.0, (600.0, 1800.0)),
        (9999.0, (600.0, 3300.0)),
    ],
)
def test_the_window_of_the_sizes_ends_with_the_run(
    end_s: float, expected: tuple[float, float]
) -> None:
    assert replica_window(end_s) == expected


def test_what_did_not_finish_is_said_under_the_table() -> None:
    tier = load_tier(demo_tier_path())
    outcome = {
        "now_s": 0.0,
        "requests": 2000,
        "good_requests": 0,
        "finished_requests": 800,
        "ttft_missed_requests": 0,
        "itl_missed_requests": 0,
        "ttft_s": {"p50": None, "p99": None},
        "mean_itl_s": None,
        "replica_seconds": {"prefill": 0.0, "decode": 0.0},
        "ready_timeline": {"prefill": [(0.0, 0)], "decode": [(0.0, 0)]},
    }
    row = score(outcome, simulation_plan(tier).pools, policy="p", changes=[])
    table = comparison_table([row], title="t")

    assert "p 1,200 of 2,000" in str(table.caption)
    assert "did not finish" in str(table.caption)
    assert "- / -" in cells(row)
    assert (
        comparison_json([row], trace="t", slo=tier.slo, seed=1)["policies"]["p"][
            "unfinished_requests"
        ]
        == 1200
    )
