"""How much traffic is played, and what it needs on average."""

from __future__ import annotations

import pytest

from phasewise.comparison import resolve_volume, trace_path, window
from phasewise.workload import automatic_volume, mean_need, scaled, trace_means
from serving.errors import Misconfigured
from serving.schema.tier import Tier, demo_tier_path, load_tier
from serving.simulation.traffic import Request, load_trace


@pytest.fixture(scope="module")
def demo_tier() -> Tier:
    return load_tier(demo_tier_path())


@pytest.fixture(scope="module")
def conversations() -> list[Request]:
    return load_trace(trace_path("azure2023_conv"))


def test_the_demo_plays_nine_times_the_trace_on_about_eight_replicas_of_each(
    demo_tier: Tier, conversations: list[Request]
) -> None:
    means = trace_means(conversations)
    volume = automatic_volume(demo_tier, means)
    need = mean_need(demo_tier, scaled(means, volume))

    assert volume == 9
    assert resolve_volume(demo_tier, conversations, "auto") == 9.0
    assert 7.0 <= need.prefill_replicas <= 9.5
    assert 7.0 <= need.decode_replicas <= 9.5
    assert need.initial(demo_tier) == {
        "prefill": -int(-need.prefill_replicas // 1),
        "decode": -int(-need.decode_replicas // 1),
    }


def test_twice_the_traffic_needs_twice_the_replicas_of_the_same_capacity(
    demo_tier: Tier, conversations: list[Request]
) -> None:
    means = trace_means(conversations)
    once, twice = mean_need(demo_tier, means), mean_need(demo_tier, scaled(means, 2.0))

    assert twice.capacity == once.capacity
    assert twice.prefill_replicas == pytest.approx(2.0 * once.prefill_replicas)
    assert twice.decode_replicas == pytest.approx(2.0 * once.decode_replicas)


def test_the_mean_need_starts_within_the_pools_limits(
    demo_tier: Tier, conversations: list[Request]
) -> None:
    huge = mean_need(demo_tier, scaled(trace_means(conversations), 1000.0))
    tiny = mean_need(demo_tier, scaled(trace_means(conversations), 0.001))

    assert huge.initial(demo_tier) == {"prefill": 40, "decode": 40}
    assert tiny.initial(demo_tier) == {"prefill": 1, "decode": 1}


def test_the_means_of_a_trace() -> None:
    means = trace_means([Request(10.0, 100, 10), Request(20.0, 300, 30), Request(30.0, 200, 50)])

    assert (means.requests, means.span_s) == (3, 20.0)
    assert (means.input_tokens_per_s, means.output_tokens_per_s) == (30.0, 4.5)
    assert (means.input_tokens_mean, means.output_tokens_mean) == (200.0, 30.0)
    assert means.input_tokens_square_mean == pytest.approx(140_000 / 3)


@pytest.mark.parametrize(
    "requests", [[], [Request(0.0, 1, 1)], [Request(4.0, 1, 1), Request(4.0, 1, 1)]]
)
def test_a_trace_without_a_span_has_no_means(requests: list[Request]) -> None:
    with pytest.raises(Misconfigured, match="too short"):
        trace_means(requests)


@pytest.mark.parametrize(("prompt", "answer"), [(32_000, 1_000), (100_000, 1), (1, 40_000)])
def test_requests_longer_than_the_engine_takes_name_that_limit(
    demo_tier: Tier, prompt: int, answer: int
) -> None:
    means = trace_means([Request(float(n), prompt, answer) for n in range(3)])

    with pytest.raises(Misconfigured, match="maxModelLenTokens") as refused:
        mean_need(demo_tier, means)
    assert f"{prompt + answer:,}" in refused.value.expected


def test_targets_that_no_size_meets_are_told_with_the_lengths(demo_tier: Tier) -> None:
    means = trace_means([Request(float(n), 31_000, 10) for n in range(3)])

    with pytest.raises(Misconfigured, match=r"at any size.* prompts of 31,000"):
        mean_need(demo_tier, means)


def test_no_trace_at_all_is_said_so() -> None:
    with pytest.raises(Misconfigured, match="--trace: no trace is named"):
        trace_path("")


THREE = [Request(0.0, 1, 1), Request(10.0, 2, 2), Request(20.0, 3, 3)]


@pytest.mark.parametrize(
    ("from_s", "to_s", "expected"),
    [
        (None, None, THREE),
        (0.0, None, THREE),
        (10.0, None, [Request(0.0, 2, 2), Request(10.0, 3, 3)]),
        (None, 10.0, [Request(0.0, 1, 1)]),
        (5.0, 20.0, [Request(5.0, 2, 2)]),
        (5.0, 20.1, [Request(5.0, 2, 2), Request(15.0, 3, 3)]),
    ],
)
def test_a_window_holds_its_start_and_not_its_end_and_begins_at_zero(
    from_s: float | None, to_s: float | None, expected: list[Request]
) -> None:
    assert window(THREE, from_s=from_s, to_s=to_s) == expected


@pytest.mark.parametrize(("from_s", "to_s"), [(20.1, None), (None, 0.0), (15.0, 12.0), (1.0, 9.0)])
def test_an_empty_window_says_what_part_there_is(from_s: float | None, to_s: float | None) -> None:
    with pytest.raises(Misconfigured, match="expected a part of 0 to 20 s"):
        window(THREE, from_s=from_s, to_s=to_s)
