"""Independent counts side by side: what each source is asked, and what is said if one is blind."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from collector.exposition import read_page
from phasewise.counting import (
    Comparison,
    KvLayout,
    blind_spots,
    compare_counts,
    counted_in,
    counts_table,
    largest_difference_ratio,
    received_bytes,
)
from serving.dialects.page import Labels, Page, total
from serving.load.outcomes import Failure, RequestOutcome
from serving.testing import DECODE, PREFILL, make_observation, make_sample
from serving.types import Observation, Phase

FIXTURES = Path(__file__).parents[1] / "fixtures"
LAYOUT = KvLayout(bytes_per_token=1024, block_tokens=128)


@pytest.mark.parametrize(
    ("tokens", "blocks"), [(1, 1), (127, 1), (128, 1), (129, 2), (512, 4), (513, 5)]
)
def test_kv_travels_in_whole_blocks_of_the_prompt(tokens: int, blocks: int) -> None:
    assert LAYOUT.bytes_of(tokens) == blocks * 128 * 1024


def _request(number: int, prompt: int, output: int, **changed: Any) -> RequestOutcome:
    plain: dict[str, Any] = {
        "request_id": f"run-{number}",
        "trace_id": f"{number:032x}",
        "input_tokens": prompt,
        "output_tokens": output,
        "scheduled_s": 0.0,
        "sent_s": 0.0,
        "ended_s": 1.0,
        "counted_tokens": output,
        "usage_prompt_tokens": prompt,
        "usage_output_tokens": output,
        "status": 200,
    }
    return RequestOutcome(**(plain | changed))


REQUESTS = (
    _request(1, 100, 10),
    _request(2, 200, 30),
    _request(3, 400, 9, failure=Failure.SERVER_ERROR, counted_tokens=0),
)
KV_BYTES = 3 * 128 * 1024


def _seen(**decode: float | None) -> tuple[Observation, ...]:
    """Two windows of 5 s that hold what REQUESTS make, the failed one only as a failure."""
    halves: list[Observation] = [
        make_observation(make_sample(PREFILL, at_s=0.0, window_s=0.0), at_s=0.0)
    ]
    for number in (1, 2):
        at_s = 5.0 * number
        prefill = make_sample(
            PREFILL,
            at_s=at_s,
            finished_requests_per_s=1 / 5,
            output_tokens_per_s=1 / 5,
            prompt_tokens_per_s=150 / 5,
            computed_prompt_tokens_per_s=150 / 5,
        )
        values: dict[str, float | None] = {
            "finished_requests_per_s": 1 / 5,
            "failed_requests_per_s": 0.5 / 5,
            "transferred_prompt_tokens_per_s": 150 / 5,
            "output_tokens_per_s": 20 / 5,
            "kv_transfer_bytes_per_s": KV_BYTES / 2 / 5,
        }
        halves.append(
            make_observation(
                prefill, make_sample(DECODE, at_s=at_s, **(values | decode)), at_s=at_s
            )
        )
    return tuple(halves)


def test_counts_that_agree_differ_by_nothing() -> None:
    found = compare_counts(REQUESTS, _seen(), layout=LAYOUT, nixl_bytes=KV_BYTES)

    assert {one.what for one in found} == {
        "requests",
        "failed requests",
        "prompt tokens",
        "output tokens",
        "KV bytes",
    }
    assert largest_difference_ratio(found) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("decode", "what", "source", "ratio"),
    [
        ({"output_tokens_per_s": 22 / 5}, "output tokens", "decode", 0.1),
        ({"finished_requests_per_s": 0.0}, "requests", "decode", -1.0),
        ({"failed_requests_per_s": 0.0}, "failed requests", "decode", -1.0),
        (
            {"transferred_prompt_tokens_per_s": 147 / 5},
            "prompt tokens",
            "decode transferred",
            -0.02,
        ),
        ({"kv_transfer_bytes_per_s": KV_BYTES / 5}, "KV bytes", "decode", 1.0),
    ],
)
def test_a_count_that_is_off_is_named_with_by_how_much(
    decode: dict[str, float], what: str, source: str, ratio: float
) -> None:
    found = compare_counts(REQUESTS, _seen(**decode), layout=LAYOUT, nixl_bytes=KV_BYTES)
    (one,) = [row for row in found if (row.what, row.source) == (what, source)]

    assert one.difference_ratio == pytest.approx(ratio)
    assert largest_difference_ratio(found) == pytest.approx(abs(ratio))


@pytest.mark.parametrize("nixl", [None, float(KV_BYTES)])
def test_what_one_source_cannot_say_is_unknown_and_so_is_the_verdict(nixl: float | None) -> None:
    seen = _seen(output_tokens_per_s=None) if nixl is not None else _seen()

    found = compare_counts(REQUESTS, seen, layout=LAYOUT, nixl_bytes=nixl)

    assert [one.found for one in found].count(None) == 1
    assert largest_difference_ratio(found) is None


def test_a_count_over_no_window_is_unknown() -> None:
    first = make_observation(
        make_sample(DECODE, at_s=0.0, window_s=0.0, output_tokens_per_s=4.0), at_s=0.0
    )

    assert counted_in([first], Phase.DECODE, "output_tokens_per_s") is None
    assert counted_in(_seen(), Phase.BOTH, "output_tokens_per_s") is None
    assert largest_difference_ratio([]) is None


@pytest.mark.parametrize(
    ("expected", "found", "ratio"),
    [(0.0, 0.0, 0.0), (0.0, 1.0, math.inf), (4.0, 5.0, 0.25), (4.0, None, None)],
)
def test_a_difference_is_a_share_of_what_it_should_be(
    expected: float, found: float | None, ratio: float | None
) -> None:
    one = Comparison(
        what="x", expected_by="load generator", expected=expected, source="decode", found=found
    )

    assert one.difference_ratio == ratio


def test_nixls_own_count_is_the_sum_over_agents_unless_it_lost_events() -> None:
    received: dict[str, dict[Labels, float]] = {
        "agent_rx_bytes_total": {(("agent_name", "a"),): 5.0, (("agent_name", "b"),): 7.0}
    }
    dropped: dict[str, dict[Labels, float]] = {"agent_telemetry_events_dropped_total": {(): 1.0}}

    assert received_bytes(Page(samples=received)) == 12.0
    assert received_bytes(Page(samples=received | dropped)) is None
    assert received_bytes(Page(samples={})) is None


def test_what_had_no_page_is_a_blind_spot() -> None:
    silent = make_observation(
        replace(make_sample(DECODE, at_s=5.0), replicas_reporting=3, problems=("b: no page",)),
        at_s=5.0,
    )
    first = replace(make_sample(DECODE, at_s=0.0, window_s=0.0), replicas_reporting=0)

    assert blind_spots([make_observation(first, at_s=0.0), *_seen()]) == ()
    assert blind_spots([silent]) == ("b: no page", "demo/decode: 3 of 4 replicas reported")
    assert blind_spots([Observation(at_s=1.0, problems=("the list did not come",))]) == (
        "the list did not come",
    )


def test_the_table_shows_each_comparison_with_its_difference() -> None:
    console = Console(width=160, record=True)
    off = _seen(output_tokens_per_s=None, kv_transfer_bytes_per_s=KV_BYTES * 0.505 / 5)
    found = compare_counts(REQUESTS, off, layout=LAYOUT, nixl_bytes=KV_BYTES)
    with console.capture() as captured:
        console.print(counts_table(found))

    lines = captured.get().splitlines()
    assert any("KV bytes" in line and "393,216" in line and "+1.000%" in line for line in lines)
    assert any("output tokens" in line and "unknown" in line for line in lines)


def _fixture(name: str, *series: str) -> Page:
    return read_page((FIXTURES / name).read_bytes(), frozenset(series))


def test_a_captured_decode_replica_transferred_what_its_prompts_come_to() -> None:
    """102 requests: 2 of 100 prompt tokens, 50 of 512, 50 of 1024, at 1 KiB a token."""
    page = _fixture("vllm-0.32/decode.prom", "vllm:nixl_bytes_transferred_sum")
    expected = 2 * LAYOUT.bytes_of(100) + 50 * LAYOUT.bytes_of(512) + 50 * LAYOUT.bytes_of(1024)

    assert total(page, "vllm:nixl_bytes_transferred_sum") == expected


def test_a_captured_nixl_exporter_received_what_its_prompts_come_to() -> None:
    """52 requests of 1024 prompt tokens at 16 KiB a token; the side that is read shows none."""
    names = ("agent_rx_bytes_total", "agent_telemetry_events_dropped_total")
    layout = KvLayout(bytes_per_token=16 * 1024, block_tokens=128)

    decode = received_bytes(_fixture("nixl-1.5.1/decode-nixl-agent.prom", *names))
    prefill = received_bytes(_fixture("nixl-1.5.1/prefill-nixl-agent.prom", *names))

    assert decode == 52 * layout.bytes_of(1024)
    assert prefill == 0.0
