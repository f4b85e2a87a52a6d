import pytest

from autoscaler.demand import Bin, bin_of, demand_level
from serving.testing import DECODE, PREFILL, make_observation, make_sample
from serving.types import Measurement, RouterSample


def bins(count, **values):
    return [Bin(at_s=5.0 * (k + 1), window_s=5.0, **values) for k in range(count)]


def level(found, now_s=60.0):
    return demand_level(found, now_s=now_s, window_s=60.0)


def test_served_work_is_the_demand_while_nothing_is_held_back():
    found = level(
        bins(
            12,
            requests_per_s=10.0,
            input_tokens_mean=1000.0,
            output_tokens_mean=200.0,
            finished_per_s=10.0,
            served_prefill_tokens_per_s=9_900.0,
            served_output_tokens_per_s=1_950.0,
        )
    )

    assert found.prefill_tokens_per_s == pytest.approx(9_900.0)
    assert found.output_tokens_per_s == pytest.approx(1_950.0)


def test_arrivals_are_the_demand_once_a_pool_holds_work_back():
    found = level(
        bins(
            12,
            requests_per_s=10.0,
            input_tokens_mean=1000.0,
            output_tokens_mean=200.0,
            finished_per_s=6.0,
            served_prefill_tokens_per_s=6_000.0,
            served_output_tokens_per_s=1_200.0,
        )
    )

    # 10 requests/s of 1,000 and 200 tokens arrive; only six a second are served
    assert found.prefill_tokens_per_s == pytest.approx(10_000.0)
    assert found.output_tokens_per_s == pytest.approx(2_000.0)
    assert not found.censored


def test_without_a_front_end_served_work_is_a_lower_bound_while_requests_wait():
    found = level(
        bins(
            12,
            finished_per_s=6.0,
            served_prefill_tokens_per_s=6_000.0,
            waiting_prefill_requests=40.0,
        )
    )

    assert found.prefill_tokens_per_s == pytest.approx(6_000.0)
    assert found.censored


@pytest.mark.parametrize(
    ("told", "expected"), [pytest.param(6, 100.0, id="half"), pytest.param(5, None, id="fewer")]
)
def test_a_level_needs_half_of_its_bins(told, expected):
    silent = bins(12 - told)
    telling = [
        Bin(at_s=5.0 * (12 - told + k + 1), window_s=5.0, served_output_tokens_per_s=100.0)
        for k in range(told)
    ]

    assert level(silent + telling).output_tokens_per_s == expected


def test_nothing_seen_is_unknown_and_not_zero():
    found = level([])

    assert found.prefill_tokens_per_s is None
    assert found.output_tokens_per_s is None


def test_lengths_are_weighted_by_the_requests_behind_them():
    found = level(
        [
            Bin(at_s=55.0, window_s=5.0, input_tokens_mean=1000.0, finished_per_s=1.0),
            Bin(at_s=60.0, window_s=5.0, input_tokens_mean=4000.0, finished_per_s=3.0),
        ]
    )

    assert found.input_tokens_mean == pytest.approx(3250.0)  # (1000 + 3 * 4000) / 4


def test_prompt_tokens_are_counted_on_the_prefill_side_only():
    """Both sides report the whole prompt; only computed tokens of the prefill pool are its work."""
    found = bin_of(
        make_observation(
            make_sample(
                PREFILL, at_s=5.0, prompt_tokens_per_s=1000.0, computed_prompt_tokens_per_s=900.0
            ),
            make_sample(
                DECODE,
                at_s=5.0,
                prompt_tokens_per_s=1000.0,
                computed_prompt_tokens_per_s=7.0,
                output_tokens_per_s=200.0,
            ),
            at_s=5.0,
        )
    )

    assert found.served_prefill_tokens_per_s == 900.0
    assert found.served_output_tokens_per_s == 200.0


def test_a_poor_front_end_leaves_the_lengths_to_the_engines():
    observation = make_observation(
        make_sample(PREFILL, at_s=5.0, request_prompt_tokens_mean=1200.0),
        make_sample(DECODE, at_s=5.0, request_output_tokens_mean=210.0),
        at_s=5.0,
    )
    router = RouterSample(
        source="vllm-router",
        window_start_s=0.0,
        window_s=5.0,
        requests_per_s=Measurement(50.0, 0.0, 1.0),
    )

    found = bin_of(type(observation)(at_s=5.0, samples=observation.samples, router=router))

    assert (found.requests_per_s, found.input_tokens_mean, found.output_tokens_mean) == (
        50.0,
        1200.0,
        210.0,
    )
