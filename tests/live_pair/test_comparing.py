"""Two runs side by side: what is alike, what differs in kind, and by how much."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from phasewise.reality.compared import Compared, compared
from phasewise.reality.comparing import Row, compare
from phasewise.reality.quirks import QUIRKS
from phasewise.reality.recording import Recording
from phasewise.reality.run import Run, p90, run_of
from serving.types import HistogramReading
from tests.live_pair import made

GAPS = "vllm:inter_token_latency_seconds"


@pytest.fixture(scope="module")
def recording() -> Recording:
    return made.recording()


@pytest.fixture(scope="module")
def itself(recording: Recording) -> Compared:
    return compared(recording)


def row(rows: Iterable[Row], target: str, name: str, *split: str) -> Row:
    found = [
        r
        for r in rows
        if (r.target, r.spec.name, tuple(v for _, v in r.split)) == (target, name, split)
    ]
    assert len(found) == 1, (target, name, split)
    return found[0]


def changed(recording: Recording, target: str, change: Callable[[str], str]) -> Run:
    return run_of(
        replace(page, text=change(page.text)) if page.target == target else page
        for page in recording.pages
    )


def test_a_simulated_pair_compared_with_itself_differs_in_nothing(recording: Recording) -> None:
    run = run_of(recording.pages)
    rows = compare(run, run)

    assert not [r for r in rows if r.differences]
    assert {r.mean_ratio for r in rows} == {1.0, None}
    assert len([r for r in rows if r.mean_ratio == 1.0]) > 20


def test_costs_that_made_a_run_are_found_again(itself: Compared) -> None:
    known, found = made.known_profile(), itself.profile

    for name in ("prefill_base_s", "prefill_s_per_token", "kv_link_bytes_per_s"):
        assert getattr(found, name) == pytest.approx(getattr(known, name), rel=1e-3), name
    assert found.kv_bytes_per_token == known.kv_bytes_per_token
    assert found.kv_capacity_tokens == known.kv_capacity_tokens
    gaps = row(itself.rows, "decode", GAPS)
    assert gaps.mean_ratio == pytest.approx(1.0, abs=0.05)


def test_every_quirk_holds_on_a_simulated_pair_or_cannot_be_told(itself: Compared) -> None:
    said_no = [quirk.words for quirk in QUIRKS if quirk.check(itself.simulated) is False]

    # KV is pulled within two milliseconds here: no page catches it pinned
    assert said_no == ["KV stays pinned on a prefill replica that neither runs nor waits"]


@pytest.mark.parametrize(
    ("change", "differences"),
    [
        (lambda text: re.sub(rf"(?m)^.*{GAPS}.*\n", "", text), ("only live",)),
        (
            lambda text: text.replace(f"# TYPE {GAPS} histogram", f"# TYPE {GAPS} summary"),
            ("type histogram live, summary simulated",),
        ),
        (
            lambda text: text.replace(f"{GAPS}_count{{", f'{GAPS}_count{{role="d",').replace(
                f"{GAPS}_sum{{", f'{GAPS}_sum{{role="d",'
            ),
            # a histogram whose buckets have other labels than its count is none
            ("only live",),
        ),
        (
            lambda text: re.sub(rf'(?m)^{GAPS}_bucket{{[^}}]*le="0.01".*\n', "", text),
            ("other bucket bounds",),
        ),
    ],
)
def test_what_differs_in_kind_is_said(
    recording: Recording, change: Callable[[str], str], differences: tuple[str, ...]
) -> None:
    rows = compare(run_of(recording.pages), changed(recording, "decode", change))

    assert row(rows, "decode", GAPS).differences == differences


def test_a_label_that_only_one_side_has_is_named(recording: Recording) -> None:
    name = "vllm:num_preemptions_total"
    other = changed(recording, "decode", lambda t: t.replace(f"{name}{{", f'{name}{{pool="d",'))

    rows = compare(run_of(recording.pages), other)

    assert row(rows, "decode", name).differences == (
        "labels only live: none; only simulated: pool",
    )


def test_what_stands_still_in_one_run_only_is_said(recording: Recording) -> None:
    name = "vllm:generation_tokens_total"
    still = changed(
        recording, "decode", lambda t: re.sub(rf"(?m)^({name}{{.*}}) .*$", r"\1 7.0", t)
    )

    rows = compare(run_of(recording.pages), still)

    assert row(rows, "decode", name).differences == ("moves live only",)


def test_a_counter_that_appears_later_has_grown_from_nothing(recording: Recording) -> None:
    run = run_of(recording.pages)
    rows = compare(run, run)
    name = "vllm_router_pd_requests_total"

    assert not run.first("router").samples.get(name)
    live = row(rows, "router", name).live
    assert live is not None
    assert live.mean == len(recording.requests)


def test_what_came_before_the_first_page_does_not_count(recording: Recording) -> None:
    later = run_of(page for page in recording.pages if page.at_s >= 10.0)
    whole = run_of(recording.pages)
    name = "vllm:request_prompt_tokens"

    one, other = later.grown("decode", name), whole.grown("decode", name)

    assert one is not None
    assert other is not None
    assert 0 < one.count < other.count


@pytest.mark.parametrize(
    ("cumulative", "expected"),
    [
        ((0.0, 10.0), 1.9),  # nine tenths into the second bucket, from 1 to 2
        ((10.0, 10.0), 0.9),
        ((0.0, 0.0), 2.0),  # above every bound: the last one is all that is known
    ],
)
def test_the_90th_percentile_is_linear_in_its_bucket(
    cumulative: tuple[float, ...], expected: float
) -> None:
    histogram = HistogramReading(bounds=(1.0, 2.0), cumulative=cumulative, sum=1.0, count=10.0)

    assert p90(histogram) == pytest.approx(expected)


def test_an_empty_histogram_has_no_percentile() -> None:
    assert p90(HistogramReading(bounds=(1.0,), cumulative=(0.0,), sum=0.0, count=0.0)) is None
