"""Schedules: a trace scaled to a machine, and mixes of lengths one after another."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import Misconfigured
from serving.load.schedule import Mix, Planned, Scaling, mixed, parse_mix, scaled
from serving.simulation.traffic import Request

LATER = [Request(100.0 + 3 * number, 50, 50) for number in range(300)]
TRACE = [Request(float(second), 1000 + second, 100 + second) for second in range(100)]


def test_a_scaling_of_nothing_is_the_trace_itself() -> None:
    assert scaled(TRACE, Scaling(), seed=1) == tuple(Planned(*request) for request in TRACE)


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        pytest.param(
            Scaling(input_factor=0.1, output_factor=0.5),
            [(0.0, 100, 50), (1.0, 100, 50), (2.0, 100, 51)],
            id="lengths-are-multiplied-and-rounded",
        ),
        pytest.param(
            Scaling(input_factor=1e-6, output_factor=1e-6),
            [(0.0, 1, 1), (1.0, 1, 1), (2.0, 1, 1)],
            id="no-length-is-below-one",
        ),
        pytest.param(
            Scaling(input_cap_tokens=1001, output_cap_tokens=100),
            [(0.0, 1000, 100), (1.0, 1001, 100), (2.0, 1001, 100)],
            id="caps-hold",
        ),
        pytest.param(
            Scaling(from_s=1.5, seconds=1.0), [(0.5, 1002, 102)], id="a-window-begins-at-zero"
        ),
        pytest.param(
            Scaling(from_s=97.0),
            [(0.0, 1097, 197), (1.0, 1098, 198), (2.0, 1099, 199)],
            id="a-window-to-the-end",
        ),
        pytest.param(
            # a tenth of the time and a tenth of the trace's requests: the rate stays 1 per second
            Scaling(time_factor=10.0, rate_factor=10.0, seconds=0.3),
            [(0.0, 1000, 100), (0.1, 1001, 101), (0.2, 1002, 102)],
            id="ten-times-the-rate-in-a-tenth-of-the-time-takes-every-request-once",
        ),
    ],
)
def test_a_trace_is_scaled(scaling: Scaling, expected: list[tuple[float, int, int]]) -> None:
    found = scaled(TRACE, scaling, seed=1)[:3]

    assert [(round(at, 9), prompt, answer) for at, prompt, answer in found] == expected


@pytest.mark.parametrize(("rate", "time"), [(0.25, 1.0), (2.5, 1.0), (1.0, 4.0), (3.0, 2.0)])
def test_the_rate_is_the_traces_own_times_its_factor_whatever_the_time_factor(
    rate: float, time: float
) -> None:
    trace = [Request(at / 10, 10, 10) for at in range(20_000)]  # 10 per second for 2,000 s

    found = scaled(trace, Scaling(rate_factor=rate, time_factor=time), seed=3)

    span_s = 2000 / time
    assert len(found) / span_s == pytest.approx(10 * rate, rel=0.05)
    assert found[-1].arrival_s <= span_s


def test_a_window_shows_the_same_requests_as_the_whole() -> None:
    whole = scaled(TRACE, Scaling(rate_factor=0.5), seed=5)
    part = scaled(TRACE, Scaling(rate_factor=0.5, from_s=40, seconds=20), seed=5)

    assert part == tuple(
        Planned(at - 40.0, prompt, answer) for at, prompt, answer in whole if 40 <= at < 60
    )


@given(
    rate=st.floats(0.5, 4.0),
    time=st.floats(0.5, 5.0),
    from_s=st.floats(0.0, 50.0),
    seconds=st.floats(20.0, 50.0),
    seed=st.integers(0, 5),
)
def test_a_schedule_is_sorted_within_its_window_and_the_same_for_one_seed(
    rate: float, time: float, from_s: float, seconds: float, seed: int
) -> None:
    scaling = Scaling(rate_factor=rate, time_factor=time, from_s=from_s, seconds=seconds)
    found = scaled([*TRACE, *LATER], scaling, seed=seed)

    assert list(found) == sorted(found)
    assert all(0.0 <= one.arrival_s < seconds for one in found)
    assert found == scaled([*TRACE, *LATER], scaling, seed=seed)


@pytest.mark.parametrize(
    ("scaling", "said"),
    [
        (Scaling(rate_factor=0.0), "--rate-factor"),
        (Scaling(time_factor=-1.0), "--time-factor"),
        (Scaling(input_factor=math.nan), "--input-factor"),
        (Scaling(output_factor=math.inf), "--output-factor"),
        (Scaling(input_cap_tokens=0), "--input-cap"),
        (Scaling(output_cap_tokens=-3), "--output-cap"),
        (Scaling(from_s=-1.0), "--from"),
        (Scaling(seconds=0.0), "--seconds"),
        (Scaling(from_s=1000.0), "nothing is left"),
        (Scaling(rate_factor=1e6), "too many requests"),
    ],
)
def test_a_scaling_that_makes_no_sense_is_said(scaling: Scaling, said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        scaled(TRACE, scaling, seed=1)


CHAT = Mix(rate_per_s=20.0, input_tokens_mean=500, output_tokens_mean=50, seconds=100.0)
CODE = Mix(
    rate_per_s=10.0,
    input_tokens_mean=2000,
    input_tokens_spread=500,
    output_tokens_mean=20,
    output_tokens_spread=10,
    seconds=50.0,
)


def test_mixes_follow_one_another_at_their_rates() -> None:
    found = mixed([CHAT, CODE], seed=1)
    chat = [one for one in found if one.arrival_s < 100.0]
    code = [one for one in found if one.arrival_s >= 100.0]

    assert list(found) == sorted(found)
    assert found[-1].arrival_s < 150.0
    # Poisson: a count of n has a deviation of √n; 4 of them are never seen
    assert len(chat) == pytest.approx(2000, abs=4 * math.sqrt(2000))
    assert len(code) == pytest.approx(500, abs=4 * math.sqrt(500))
    assert {(one.input_tokens, one.output_tokens) for one in chat} == {(500, 50)}


def test_lengths_of_a_mix_lie_within_their_spread_and_around_their_mean() -> None:
    lengths = [one.input_tokens for one in mixed([CODE], seed=2)]

    assert 1500 <= min(lengths) < 1550
    assert 2450 < max(lengths) <= 2500
    # uniform: deviation 500/√3 = 289, of the mean of 500 of them 13
    assert sum(lengths) / len(lengths) == pytest.approx(2000, abs=4 * 13)


def test_the_gaps_of_a_mix_vary_as_much_as_their_mean() -> None:
    """What makes arrivals Poisson and not a beat."""
    times = [one.arrival_s for one in mixed([CHAT], seed=4)]
    gaps = [after - before for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))

    assert deviation / mean == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("text", "mix"),
    [
        (
            "rate=5,input=512/128,output=64/16,seconds=60",
            Mix(
                rate_per_s=5.0,
                input_tokens_mean=512,
                input_tokens_spread=128,
                output_tokens_mean=64,
                output_tokens_spread=16,
                seconds=60.0,
            ),
        ),
        (
            "seconds=1.5, output=1, input=2, rate=0.5",
            Mix(rate_per_s=0.5, input_tokens_mean=2, output_tokens_mean=1, seconds=1.5),
        ),
    ],
)
def test_a_mix_is_read(text: str, mix: Mix) -> None:
    assert parse_mix(text) == mix


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rate=5",
        "rate=5,rate=6,input=1,output=1,seconds=1",
        "rate=5,input=1,output=1,seconds=1,more=1",
        "rate=-5,input=1,output=1,seconds=1",
        "rate=0,input=1,output=1,seconds=1",
        "rate=nan,input=1,output=1,seconds=1",
        "rate=5,input=1.5,output=1,seconds=1",
        "rate=5,input=10/10,output=1,seconds=1",
        "rate=5,input=0,output=1,seconds=1",
        "rate=5,input=1,output=1/2/3,seconds=1",
        "rate=5,input=1,output=1,seconds=0",
        "rate=1000000,input=1,output=1,seconds=1000",
        "rate=٣,input=1,output=1,seconds=1",
    ],
)
def test_what_is_no_mix_is_said(text: str) -> None:
    with pytest.raises(Misconfigured, match="--mix"):
        parse_mix(text)


def test_mixes_in_which_nothing_arrives_are_said() -> None:
    quiet = Mix(rate_per_s=1e-9, input_tokens_mean=1, output_tokens_mean=1, seconds=1.0)

    with pytest.raises(Misconfigured, match="nothing is left"):
        mixed([quiet], seed=1)
