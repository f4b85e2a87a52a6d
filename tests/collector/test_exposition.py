"""The fast reader says what the reference parser says, and nothing about what is broken."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from collector.exposition import read_page
from serving.dialects import epp, vllm, vllm_router
from serving.dialects.page import Labels, Page
from serving.errors import Unavailable

FIXTURES = Path(__file__).parents[1] / "fixtures"
PAGES = sorted((*FIXTURES.glob("*/*.prom"), *FIXTURES.glob("*/*.txt")))
EVERYTHING = vllm.WANTED | epp.WANTED | vllm_router.WANTED
WANTED = frozenset({"a", "b_total", "h_bucket", "h_sum", "h_count"})

Samples = dict[str, dict[Labels, float]]


def reference(text: str, wanted: frozenset[str]) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in wanted:
                labels = tuple(sorted(sample.labels.items()))
                found.setdefault(sample.name, {})[labels] = float(sample.value)
    return found


def same(one: Samples, other: Samples) -> bool:
    def plain(samples: Samples) -> list[tuple[str, list[tuple[Labels, str]]]]:
        return [
            (name, sorted((labels, repr(v)) for labels, v in series.items()))
            for name, series in sorted(samples.items())
        ]

    return plain(one) == plain(other)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_captured_page_reads_as_the_reference_parser_reads_it(path: Path) -> None:
    body = path.read_bytes()
    page = read_page(body.rstrip() + b"\n", EVERYTHING)

    assert page.problems == ()
    assert same(dict(page.samples), reference(body.decode(), EVERYTHING))  # type: ignore[arg-type]


def test_the_captured_pages_are_there() -> None:
    assert len(PAGES) >= 15


names = st.sampled_from(["a", "b_total", "h_bucket", "h_sum", "h_count", "other", "ab", "h"])
label_names = st.sampled_from(["le", "engine", "model_name", "_x", "reason"])
label_values = st.text(st.sampled_from(list('abz019 {}=,#"\\\n+.:/é\u2028')), max_size=8)
blanks = st.sampled_from(["", " ", "  ", "\t", " \t "])
some_blanks = st.sampled_from([" ", "  ", "\t"])
numbers = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.integers(-(10**18), 10**18).map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "Inf", "1e6", "1.79598021942e+09", "0.0", "+5", ".5"]),
)


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, Labels, str]:
    name = draw(names)
    pairs = draw(st.dictionaries(label_names, label_values, max_size=3))
    before, behind, gap = draw(blanks), draw(blanks), draw(some_blanks)
    parts = [
        f'{draw(blanks)}{key}{draw(blanks)}={draw(blanks)}"{escaped(value)}"{draw(blanks)}'
        for key, value in pairs.items()
    ]
    text = ",".join(parts)
    if parts and draw(st.booleans()):
        text += ","
    braces = f"{draw(blanks)}{{{text}}}{draw(blanks)}" if parts or draw(st.booleans()) else gap
    stamp = draw(st.one_of(st.just(""), st.integers(0, 2 * 10**12).map(lambda ms: f" {ms}")))
    line = f"{before}{name}{braces}{draw(numbers)}{stamp}{behind}"
    return name, tuple(sorted(pairs.items())), line


comments = st.sampled_from(
    ["", "# a comment {", "# HELP a odd {help} text", "# TYPE a gauge", "#", "# EOF", "   "]
)


@given(st.lists(st.one_of(lines(), comments), max_size=12))
def test_any_whole_page_reads_as_the_reference_parser_reads_it(
    drawn: list[tuple[str, Labels, str] | str],
) -> None:
    seen: set[tuple[str, Labels]] = set()
    kept: list[str] = []
    for one in drawn:
        if isinstance(one, str):
            kept.append(one)
        elif one[:2] not in seen:
            seen.add(one[:2])
            kept.append(one[2])
    text = "\n".join(kept) + "\n"
    page = read_page(text.encode(), WANTED)

    assert page.problems == ()
    assert same(dict(page.samples), reference(text, WANTED))  # type: ignore[arg-type]


@given(st.binary(max_size=400))
@example(b"\xff\xfe\n")
@example(b'a{le="\n')
@example(b'a{le="x"} 1 # {x="y"} 2\n')
@example(gzip.compress(b"a 1\n"))
def test_no_bytes_make_it_raise_anything_but_unavailable(body: bytes) -> None:
    try:
        page = read_page(body, WANTED)
    except Unavailable:
        return

    assert not page.broken & page.samples.keys()
    assert all(page.samples[name] for name in page.samples)


@given(
    st.lists(
        st.sampled_from([b"a", b"{", b"}", b'"', b"\\", b"le=", b",", b" ", b"1", b"\n", b"#"])
    )
)
def test_what_the_reference_refuses_is_never_read_as_a_number(pieces: list[bytes]) -> None:
    body = b"".join(pieces) + b"\n"
    page = read_page(body, frozenset({"a"}))
    try:
        expected = reference(body.decode(), frozenset({"a"}))
    except (ValueError, IndexError):
        return  # the reference refuses the page for any of its lines; ours says which series

    if not page.problems:
        assert same(dict(page.samples), expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b"", "empty", id="empty"),
        pytest.param(b"a 1\nb_total 2", "cut off", id="last-line-without-its-end"),
        pytest.param(b"a \xff\n", "not UTF-8", id="not-utf-8"),
        pytest.param(b"a 1\n\x00\x01\n", "binary", id="binary"),
        pytest.param(gzip.compress(b"a 1\n"), "not UTF-8", id="gzip-not-unpacked"),
        pytest.param(b"\n" * 250_001, "more than 250000 lines", id="endless-lines"),
    ],
)
def test_a_page_that_is_none_is_unavailable_in_one_sentence(body: bytes, words: str) -> None:
    with pytest.raises(Unavailable, match=words):
        read_page(body, WANTED)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("a one", id="not-a-number"),
        pytest.param("a 1_000", id="underscore"),
        pytest.param("a", id="no-value"),
        pytest.param("a 1 2 3", id="too-many-numbers"),
        pytest.param("a 1 yesterday", id="odd-timestamp"),
        pytest.param("a x{} 1", id="two-names"),
        pytest.param('a{engine="0" 1', id="brace-not-closed"),
        pytest.param('a{engine="0} 1', id="quote-not-closed"),
        pytest.param("a{engine=0} 1", id="value-not-quoted"),
        pytest.param('a{engine="0",engine="0"} 1', id="label-twice"),
        pytest.param('a{engine="0",,} 1', id="two-commas"),
        pytest.param('a{engine="0"} 1\na{engine="0"} 2', id="two-values"),
        pytest.param('a{x="1",y="2"} 1\na{y="2",x="1"} 2', id="two-values-two-orders"),
        pytest.param('a{engine="' + "0" * 20_000 + '"} 1', id="endless-line"),
    ],
)
def test_a_broken_line_makes_its_series_unknown_and_only_that(line: str) -> None:
    page = read_page(f'b_total 7\na{{engine="1"}} 3\n{line}\n'.encode(), WANTED)

    assert page.broken == {"a"}
    assert page.samples == {"b_total": {(): 7.0}}
    assert len(page.problems) == 1
    assert page.problems[0].startswith("a: ")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        pytest.param('a{engine="0"} 3 # {trace_id="x"} 0.2 1700000000', 3.0, id="exemplar"),
        pytest.param('a 3 # {trace_id="x"} 0.2', 3.0, id="exemplar-without-labels"),
        pytest.param('a{engine="0"} 3\na{engine="0"} 3', 3.0, id="same-line-twice"),
        pytest.param('{"a",engine="0"} 3', 3.0, id="name-inside-braces"),
        pytest.param('a{engine="0"} 3\r', 3.0, id="carriage-return"),
    ],
)
def test_an_unusual_line_is_read(line: str, value: float) -> None:
    page = read_page(f"{line}\n".encode(), WANTED)

    assert page.problems == ()
    assert list(page.samples["a"].values()) == [value]


def test_nan_twice_is_no_contradiction() -> None:
    page: Page = read_page(b"a NaN\na NaN\n", WANTED)

    assert page.problems == ()
    assert math.isnan(page.samples["a"][()])


def test_many_labels_on_one_line_are_read_in_linear_time() -> None:
    labels = ",".join(f'l{i}="{i}"' for i in range(1_000))
    body = (f"a{{{labels}}} 1\n" * 1).encode()

    assert len(next(iter(read_page(body, WANTED).samples["a"]))) == 1_000
