import dataclasses
import math

import pytest

from autoscaler.capacity import new_decode_model, new_prefill_model, request_weighted_step_ratio
from autoscaler.learn_capacity import learn_decode, learn_prefill, own_step_tokens
from autoscaler.types import CapacityPrior
from serving.testing import DECODE, PREFILL, make_sample
from serving.types import Phase

PRIOR = CapacityPrior()


def prefill_sample(at_s, *, tokens, service_s, prompts=1.0, **more):
    steps = 20.0
    values = {
        "prefill_time_mean_s": service_s,
        "steps_per_s": steps,
        "step_tokens_per_s": steps * tokens * prompts,
        "finished_requests_per_s": steps * prompts,
        "preemptions_per_s": 0.0,
        "kv_transfer_failures_per_s": 0.0,
    }
    return make_sample(PREFILL, at_s=at_s, **(values | more))


def decode_sample(at_s, *, batch, context, gap_s, replicas=4, **more):
    values = {
        "itl_mean_s": gap_s,
        "output_tokens_per_s": replicas * batch / gap_s,
        "running_requests": replicas * batch,
        "kv_used_tokens": replicas * batch * context,
        "kv_capacity_tokens": replicas * 190_000.0,
        "finished_requests_per_s": 10.0,
        "preemptions_per_s": 0.0,
        "kv_transfer_failures_per_s": 0.0,
    }
    return make_sample(DECODE, at_s=at_s, replicas=replicas, **(values | more))


def test_prefill_service_time_is_learned_from_prefill_time_against_step_tokens():
    model = new_prefill_model(PRIOR)
    for k in range(24):
        tokens = 900.0 + 50.0 * (k % 8)
        model = learn_prefill(
            model,
            prefill_sample(5.0 * k, tokens=tokens, service_s=0.02 + 2e-4 * tokens),
            prior=PRIOR,
            max_batched_tokens=8192,
        )

    assert model.is_learned
    assert model.service_s(1100.0) == pytest.approx(0.02 + 2e-4 * 1100.0, rel=0.05)


def test_decode_step_time_is_learned_from_gap_batch_and_resident_kv():
    model = new_decode_model(PRIOR)
    for k in range(48):
        batch, context = 20.0 + 3.0 * (k % 9), 1000.0 + 100.0 * (k % 5)
        gap_s = 0.030 + batch * (5e-5 + 1e-7 * context)
        model = learn_decode(
            model, decode_sample(5.0 * k, batch=batch, context=context, gap_s=gap_s), prior=PRIOR
        )

    step_s = model.base_s + 40.0 * model.s_per_request(1200.0)
    assert step_s == pytest.approx(0.030 + 40.0 * (5e-5 + 1e-7 * 1200.0), rel=0.03)
    assert model.kv_capacity_tokens == pytest.approx(190_000.0)


@pytest.mark.parametrize(
    "spoiled",
    [
        pytest.param({"preemptions_per_s": 1.0}, id="preemptions"),
        pytest.param({"kv_transfer_failures_per_s": 0.2}, id="failed-transfers"),
        pytest.param({"finished_requests_per_s": None}, id="coverage-unknown"),
        pytest.param({"prefill_time_mean_s": None}, id="nothing-finished"),
        pytest.param({"prefill_time_mean_s": -1056.0}, id="negative-time"),
        pytest.param({"steps_per_s": 0.0}, id="idle"),
    ],
)
def test_a_spoiled_window_teaches_prefill_nothing(spoiled):
    model = new_prefill_model(PRIOR)

    after = learn_prefill(
        model,
        prefill_sample(5.0, tokens=1000.0, service_s=5.0, **spoiled),
        prior=PRIOR,
        max_batched_tokens=8192,
    )

    assert after == model


def test_requests_that_wait_for_their_kv_do_not_look_like_long_contexts():
    """A slow link: 400 requests hold 1,000 tokens each, 320 of them before they run."""
    slow = decode_sample(
        5.0, batch=20.0, context=5_000.0, gap_s=0.03, running_requests=80.0, deferred_requests=320.0
    )
    usual = decode_sample(5.0, batch=20.0, context=1_100.0, gap_s=0.03, deferred_requests=8.0)
    model = new_decode_model(PRIOR)

    assert learn_decode(model, slow, prior=PRIOR).context_tokens_mean is None
    # 80 run and 8 wait, and they hold 88,000 tokens together
    assert learn_decode(model, usual, prior=PRIOR).context_tokens_mean == pytest.approx(1_000.0)


def test_a_step_time_that_no_batch_can_serve_is_infinite():
    model = new_decode_model(PRIOR)

    assert model.step_s(1.0 / model.s_per_request(1000.0), 1000.0) == math.inf


@pytest.mark.parametrize(
    ("prompts_per_step", "ratio"),
    [
        pytest.param(1.0, 1.0, id="alone"),
        # λ = 1.5936 solves λ/(1-e^-λ) = 2, so (1 + λ)/2 = 1.297
        pytest.param(2.0, 1.2968, id="two"),
        # λ = 9.9995, (1 + λ)/10
        pytest.param(10.0, 1.09995, id="ten"),
    ],
)
def test_the_step_of_a_random_request_is_larger_than_the_mean_step(prompts_per_step, ratio):
    assert request_weighted_step_ratio(prompts_per_step) == pytest.approx(ratio, rel=1e-3)


def test_in_an_aggregated_pool_steps_that_only_decode_do_not_make_prefill_look_slow():
    """40 steps/s decode a batch of 40; two prompts of 1,000 tokens a second share them."""
    both = dataclasses.replace(PREFILL, name="both", phase=Phase.BOTH)
    values = {
        "steps_per_s": 40.0,
        "step_tokens_per_s": 40.0 * 40.0 + 2_000.0,
        "finished_requests_per_s": 2.0,
        "computed_prompt_tokens_per_s": 2_000.0,
    }

    found = own_step_tokens(make_sample(both, at_s=5.0, **values), max_batched_tokens=8192)

    assert found == 1_000.0  # the mean step has 90 tokens


@pytest.mark.parametrize("name", ["finished_requests_per_s", "computed_prompt_tokens_per_s"])
def test_what_is_unknown_of_an_aggregated_pool_tells_nothing(name):
    both = dataclasses.replace(PREFILL, name="both", phase=Phase.BOTH)
    values = {"finished_requests_per_s": 2.0, "computed_prompt_tokens_per_s": 2e3, name: None}

    assert own_step_tokens(make_sample(both, at_s=5.0, **values), max_batched_tokens=8192) is None
