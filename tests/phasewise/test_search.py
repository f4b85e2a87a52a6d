"""Few plays find a peer's fair row: on any monotone curve, and never the same point twice."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasewise.comparison import comparison_json, headroom_bracket
from phasewise.scoring import Score
from phasewise.search import (
    SizeTried,
    cheapest_match,
    next_headroom,
    next_size,
    sweep_headroom,
    sweep_sizes,
)
from serving.types import Slo

TARGET = 0.985


def row(
    attainment: float, hours: float = 1.0, *, ttft: float = 0.0, itl: float = 0.0, policy: str = "p"
) -> Score:
    return Score(
        policy=policy,
        requests=1_000_000,
        good_requests=round(1_000_000 * attainment),
        ttft_missed_ratio=ttft,
        itl_missed_ratio=itl,
        accelerator_hours={"prefill": hours},
        ttft_s={"p50": None, "p99": None},
        itl_s={"p50": None, "p99": None},
        scaling_actions=0,
        reversals=0,
        replicas={},
    )


def exponential(at_zero: float, per_headroom: float) -> Callable[[float], Score]:
    """Misses that fall exponentially with headroom, as those of a queue do; hours that rise."""

    def play(headroom: float) -> Score:
        missed = min(1.0, at_zero * math.exp(-per_headroom * headroom))
        return row(1.0 - missed, 1.0 + headroom)

    return play


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([row(0.99, 5), row(0.99, 4), row(0.98, 1)], (1, True), id="cheapest"),
        pytest.param([row(0.97, 5), row(0.98, 6), row(0.96, 1)], (1, False), id="best-unmatched"),
        pytest.param([row(0.98, 5), row(0.98, 4)], (1, False), id="cheaper-of-equals"),
        pytest.param([row(TARGET, 5)], (0, True), id="exactly"),
    ],
)
def test_the_fair_row_is_the_cheapest_that_attains_as_much(
    rows: list[Score], expected: tuple[int, bool]
) -> None:
    index, matched = expected

    assert cheapest_match(rows, TARGET) == (rows[index], matched)


@given(st.lists(st.tuples(st.integers(-40, 80), st.booleans()), min_size=1, max_size=6))
def test_a_row_far_above_the_next_point_that_misses_says_so(
    points: list[tuple[int, bool]],
) -> None:
    scores = [
        replace(row(0.99 if over else 0.97, 100 + percent), headroom_ratio=percent / 100)
        for percent, over in points
    ]
    found, matched = cheapest_match(scores, TARGET)
    bracket = headroom_bracket(found, scores, TARGET) if matched else None
    height = found.headroom_ratio
    assert height is not None
    under = [p / 100 for p, over in points if not over and p / 100 < height]

    if matched and under and height - max(under) > 0.051:
        assert bracket == (max(under), height)
    elif not (matched and under) or height - max(under) < 0.049:
        assert bracket is None
    slo = Slo(ttft_s=1.0, itl_s=1.0, attainment_ratio=0.99)
    shown = replace(found, headroom_bracket=bracket)
    document = comparison_json([shown], trace="t", slo=slo, seed=1)
    told = document["policies"]["p"].get("headroom_bracket")
    assert told == (None if bracket is None else list(bracket))


@pytest.mark.parametrize("at_zero", [0.02, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("per_headroom", [5.0, 10.0, 15.0])
def test_three_plays_find_a_headroom_close_to_the_smallest_that_attains(
    at_zero: float, per_headroom: float
) -> None:
    rows = sweep_headroom(exponential(at_zero, per_headroom), target_ratio=TARGET, at_most=3)
    found, matched = cheapest_match(rows, TARGET)
    smallest = math.log(at_zero / (1.0 - TARGET)) / per_headroom

    assert len(rows) <= 3
    assert matched
    assert smallest <= found.total_hours - 1.0 <= smallest + 0.035


@given(
    st.floats(1e-4, 1.0),
    st.floats(0.1, 40.0),
    st.floats(0.5, 1.0),
    st.integers(1, 12),
)
def test_no_headroom_is_played_twice_and_the_search_ends(
    at_zero: float, per_headroom: float, target: float, at_most: int
) -> None:
    rows = sweep_headroom(exponential(at_zero, per_headroom), target_ratio=target, at_most=at_most)
    played = [round(each.total_hours - 1.0, 3) for each in rows]

    assert 1 <= len(rows) <= at_most
    assert len(set(played)) == len(played)
    assert all(-0.5 <= headroom <= 2.0 for headroom in played)


@given(
    st.lists(st.tuples(st.floats(-0.5, 2.0), st.floats(0.0, 1.0)), min_size=1, max_size=6),
    st.floats(0.5, 1.0),
)
def test_whatever_a_noisy_peer_attains_the_next_headroom_is_a_new_one(
    tried: list[tuple[float, float]], target: float
) -> None:
    apart = {round(headroom, 2): attained for headroom, attained in tried}
    following = next_headroom(list(apart.items()), target)

    assert following is None or all(abs(following - h) > 1e-3 for h in apart)
    assert following is None or math.isfinite(following)


def test_the_search_starts_where_most_peers_end() -> None:
    assert next_headroom([], TARGET) == 0.15


@pytest.mark.parametrize(
    ("attained", "direction"),
    [(0.99, -1), (0.97, +1), (0.5, +1)],
)
def test_the_second_headroom_is_on_the_other_side(attained: float, direction: int) -> None:
    following = next_headroom([(0.15, attained)], TARGET)

    assert following is not None
    assert (following - 0.15) * direction > 0.0


def separable(prefill_needed: int, decode_needed: int) -> Callable[[int, int], Score]:
    """Each pool's misses fall by half and more with every replica above what it needs."""

    def play(prefill: int, decode: int) -> Score:
        ttft = min(0.9, 0.006 * 2.5 ** (prefill_needed - prefill))
        itl = min(0.9, 0.006 * 2.5 ** (decode_needed - decode))
        return row(max(0.0, 1.0 - ttft - itl), prefill + decode, ttft=ttft, itl=itl)

    return play


@pytest.mark.parametrize("needed", [(6, 6), (9, 5), (5, 9), (8, 8)])
@pytest.mark.parametrize("off", [(0, 0), (1, 1), (-1, -1), (1, -1)])
def test_a_few_plays_find_a_size_that_attains_and_is_nearly_the_smallest(
    needed: tuple[int, int], off: tuple[int, int]
) -> None:
    start = (needed[0] + off[0], needed[1] + off[1])
    rows = sweep_sizes(separable(*needed), start=start, target_ratio=TARGET, at_most=5)
    found, matched = cheapest_match(rows, TARGET)

    assert matched
    assert sum(needed) <= found.total_hours <= sum(needed) + 1


@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(1, 12), st.integers(1, 12), st.integers(1, 9)
)
def test_no_size_is_played_twice_or_is_empty(
    prefill: int, decode: int, start_prefill: int, start_decode: int, at_most: int
) -> None:
    played: list[tuple[int, int]] = []

    def play(*size: int) -> Score:
        played.append((size[0], size[1]))
        return separable(prefill, decode)(*size)

    sweep_sizes(play, start=(start_prefill, start_decode), target_ratio=TARGET, at_most=at_most)

    assert len(set(played)) == len(played)
    assert all(size[0] >= 1 and size[1] >= 1 for size in played)


def tried(prefill: int, decode: int, *, ttft: float, itl: float) -> SizeTried:
    return SizeTried(
        prefill=prefill,
        decode=decode,
        attainment_ratio=1.0 - ttft - itl,
        ttft_missed_ratio=ttft,
        itl_missed_ratio=itl,
    )


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        pytest.param(tried(5, 5, ttft=0.03, itl=0.0), (6, 5), id="prompts-wait"),
        pytest.param(tried(5, 5, ttft=0.0, itl=0.03), (5, 6), id="gaps-are-long"),
        pytest.param(tried(5, 5, ttft=0.02, itl=0.02), (6, 6), id="both"),
        pytest.param(tried(5, 5, ttft=0.2, itl=0.0), (7, 5), id="far-too-few"),
        pytest.param(tried(5, 5, ttft=0.001, itl=0.005), (4, 5), id="give-back-the-idler"),
        pytest.param(tried(5, 5, ttft=0.005, itl=0.001), (5, 4), id="or-the-other"),
    ],
)
def test_the_next_size_grows_what_misses_and_gives_back_what_does_not(
    last: SizeTried, expected: tuple[int, int]
) -> None:
    assert next_size([last], TARGET, (5, 5)) == expected


def test_a_size_that_a_tried_one_decides_is_not_played() -> None:
    known = [
        tried(5, 5, ttft=0.001, itl=0.001),
        tried(4, 5, ttft=0.05, itl=0.0),
        tried(5, 4, ttft=0.0, itl=0.05),
    ]

    following = next_size(known, TARGET, (5, 5))

    assert following == (3, 6)
    assert next_size([*known, tried(3, 6, ttft=0.1, itl=0.0)], TARGET, (5, 5)) == (6, 3)
