"""Traces: what is read, what is refused and how that is said, and how they are multiplied."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import Misconfigured
from serving.simulation.traffic import LONGEST_S, Request, load_trace, multiply

HEADER = "t_s,input_tokens,output_tokens,tenant\n"


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_a_trace_is_read_plain_or_packed_and_further_columns_are_ignored(tmp_path, name):
    path = tmp_path / name
    content = (HEADER + "0.5,10,1,a\n\n2,30,4,b\n").encode()
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)

    assert load_trace(path) == [Request(0.5, 10, 1), Request(2.0, 30, 4)]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        pytest.param("", 1, "no column t_s", id="empty-file"),
        pytest.param("t_s,input_tokens\n0,1\n", 1, "no column output_tokens", id="column"),
        pytest.param(HEADER, None, "empty", id="header-only"),
        pytest.param(HEADER + "0,1,1,a\n1,1\n", 3, "too short", id="short-row"),
        pytest.param(HEADER + "x,1,1,a\n", 2, "t_s is not a number", id="time-word"),
        pytest.param(HEADER + "nan,1,1,a\n", 2, "t_s is out of range", id="time-nan"),
        pytest.param(HEADER + "inf,1,1,a\n", 2, "t_s is out of range", id="time-inf"),
        pytest.param(HEADER + "-1,1,1,a\n", 2, "t_s is out of range", id="time-negative"),
        pytest.param(HEADER + "0,0,1,a\n", 2, "input_tokens is out of range", id="no-input"),
        pytest.param(HEADER + "0,-5,1,a\n", 2, "input_tokens is out of range", id="negative"),
        pytest.param(HEADER + "0,1,0,a\n", 2, "output_tokens is out of range", id="no-output"),
        pytest.param(HEADER + "0,1,1.5,a\n", 2, "output_tokens is not a whole", id="fraction"),
        pytest.param(HEADER + "1_000,1,1,a\n", 2, "t_s is not a number", id="time-underscore"),
        pytest.param(HEADER + "٣,1,1,a\n", 2, "t_s is not a number", id="time-other-digits"),
        pytest.param(HEADER + "0,1_000,1,a\n", 2, "input_tokens is not", id="underscore"),
        pytest.param(HEADER + "0,1,٣,a\n", 2, "output_tokens is not", id="other-digits"),
        pytest.param(HEADER + "1.7e9,1,1,a\n", 2, "starts at 1.7e\\+09 s", id="unix-times"),
        pytest.param(HEADER + "0,1,1,a\n2678401,1,1,a\n", 3, "31 days", id="over-31-days"),
        pytest.param(HEADER + "5,1,1,a\n4,1,1,a\n", 3, "not sorted", id="unsorted"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(tmp_path, text, line, said):
    path = tmp_path / "bad.csv"
    path.write_text(text)

    with pytest.raises(Misconfigured, match=said) as refused:
        load_trace(path)
    assert str(path) in refused.value.where
    assert line is None or f"line {line}" in refused.value.where
    assert refused.value.expected


def test_a_trace_that_is_not_there_or_not_packed_is_refused(tmp_path):
    with pytest.raises(Misconfigured, match="no such trace"):
        load_trace(tmp_path / "none.csv")
    (tmp_path / "plain.csv.gz").write_text(HEADER)
    with pytest.raises(Misconfigured, match="cannot be read"):
        load_trace(tmp_path / "plain.csv.gz")
    with pytest.raises(Misconfigured, match="folder"):
        load_trace(tmp_path)


def test_a_packed_trace_that_is_damaged_anywhere_is_refused(tmp_path):
    rows = "".join(f"{n},{n % 97 + 1},{n % 31 + 1},a\n" for n in range(300))
    whole = gzip.compress((HEADER + rows).encode())
    path = tmp_path / "damaged.csv.gz"
    for place in range(10, len(whole) - 8, 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with pytest.raises(Misconfigured):
            load_trace(path)
    for end in range(1, len(whole), 50):
        path.write_bytes(whole[:end])
        with pytest.raises(Misconfigured):
            load_trace(path)


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_a_byte_order_mark_is_passed_over(tmp_path, name):
    path = tmp_path / name
    content = (HEADER + "0.5,10,1,a\n").encode("utf-8-sig")
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)

    assert load_trace(path) == [Request(0.5, 10, 1)]


def test_a_trace_of_exactly_31_days_is_read(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text(HEADER + f"0,1,1,a\n{LONGEST_S:g},1,1,a\n")

    assert load_trace(path)[-1].arrival_s == LONGEST_S


TRACE = st.lists(
    st.builds(Request, st.floats(0.0, 1000.0), st.integers(1, 9), st.integers(1, 9)),
    min_size=1,
    max_size=30,
).map(lambda requests: sorted(requests))


@given(trace=TRACE, copies=st.integers(1, 5), spread_s=st.floats(0.0, 50.0), seed=st.integers(0, 9))
def test_copies_keep_lengths_and_span_and_order(trace, copies, spread_s, seed):
    moved = multiply(trace, copies=copies, spread_s=spread_s, seed=seed)

    assert len(moved) == copies * len(trace)
    assert sorted(r[1:] for r in moved) == sorted(r[1:] for r in trace for _ in range(copies))
    assert [r.arrival_s for r in moved] == sorted(r.arrival_s for r in moved)
    assert moved[0].arrival_s >= trace[0].arrival_s
    assert moved[-1].arrival_s <= trace[-1].arrival_s
    assert moved == multiply(trace, copies=copies, spread_s=spread_s, seed=seed)


def test_one_copy_is_the_trace_itself_and_no_copy_moves_further_than_the_spread():
    trace = [Request(100.0 * n, n + 1, 1) for n in range(50)]
    assert multiply(trace, copies=1, spread_s=20.0, seed=1) == trace
    for request in multiply(trace, copies=3, spread_s=20.0, seed=1):
        assert abs(request.arrival_s - 100.0 * (request.input_tokens - 1)) <= 20.0


@pytest.mark.parametrize(("copies", "expected"), [(0.5, 1000), (2.25, 4500)])
def test_a_fractional_volume_keeps_that_share(copies, expected):
    trace = [Request(float(n), 1, 1) for n in range(2000)]
    # two standard deviations of a binomial are below 45
    assert len(multiply(trace, copies=copies, spread_s=1.0, seed=3)) == pytest.approx(
        expected, abs=90
    )


@pytest.mark.parametrize(
    ("copies", "spread_s"), [(0.0, 1.0), (-1.0, 1.0), (float("nan"), 1.0), (2.0, -1.0)]
)
def test_a_volume_that_makes_no_sense_is_refused(copies, spread_s):
    with pytest.raises(Misconfigured):
        multiply([Request(0.0, 1, 1)], copies=copies, spread_s=spread_s, seed=0)
