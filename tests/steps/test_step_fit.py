"""Capacity learned from step sums: from made-up steps exactly, and from real ones well enough."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from autoscaler.capacity import new_decode_model, new_prefill_model
from autoscaler.codec import dump_observations, load_observations
from autoscaler.learn_capacity import learn_decode, learn_prefill
from autoscaler.step_judge import judge_decode, judge_prefill, read_steps
from autoscaler.types import CapacityPrior
from serving.errors import Misconfigured
from serving.step_sums import StepReading, StepSums, added, one_step
from serving.testing import DECODE, PREFILL, make_observation, make_sample
from serving.types import Phase

PRIOR = CapacityPrior()
NOTHING = StepReading(prefill=StepSums(), decode=StepSums(), mixed=StepSums())
REAL = Path(__file__).parents[1] / "fixtures" / "vllm-0.32" / "steps.jsonl"


def summed(steps):
    total = StepSums()
    for step in steps:
        total = added(total, one_step(**step))
    return total


def decode_step(batch, kv_tokens, *, prefill_tokens=0):
    seconds = 0.02 + 5e-4 * (batch + prefill_tokens) + 3e-7 * kv_tokens
    return {
        "prefill_tokens": prefill_tokens,
        "sequences": batch,
        "kv_tokens": kv_tokens,
        "seconds": seconds,
    }


def decode_window(rng, *, prefill_tokens=0):
    return summed(
        decode_step(b, b * rng.randrange(500, 2_000), prefill_tokens=prefill_tokens)
        for b in (rng.randrange(1, 40) for _ in range(60))
    )


def with_steps(pool, at_s, *, values=None, **kinds):
    sample = make_sample(pool, at_s=at_s, **(values or {}))
    return dataclasses.replace(sample, steps=dataclasses.replace(NOTHING, **kinds))


def predicted_s(model, batch, kv_tokens):
    return model.base_s + batch * model.s_per_sequence + kv_tokens * model.s_per_kv_token


def test_decode_steps_are_learned_from_their_sums_alone():
    rng, model = random.Random(1), new_decode_model(PRIOR)
    for k in range(24):
        model = learn_decode(
            model, with_steps(DECODE, 5.0 * k, decode=decode_window(rng)), prior=PRIOR
        )

    assert model.is_learned
    assert predicted_s(model, 4, 4_000.0) == pytest.approx(0.0232, rel=0.02)
    assert predicted_s(model, 36, 60_000.0) == pytest.approx(0.0560, rel=0.02)


def test_on_a_decode_pool_first_tokens_of_received_prompts_are_sequences():
    rng, model = random.Random(1), new_decode_model(PRIOR)
    for k in range(24):
        mixed = decode_window(rng, prefill_tokens=1)
        model = learn_decode(model, with_steps(DECODE, 5.0 * k, mixed=mixed), prior=PRIOR)

    # 36 sequences run and one begins: 0.02 + 37 * 5e-4 + 60,000 * 3e-7
    assert predicted_s(model, 37, 60_000.0) == pytest.approx(0.0565, rel=0.02)


def test_prompts_that_a_decode_pool_computes_itself_teach_no_decode():
    mixed = summed([decode_step(8, 8_000.0, prefill_tokens=512)] * 40)
    model = new_decode_model(PRIOR)

    assert learn_decode(model, with_steps(DECODE, 5.0, mixed=mixed), prior=PRIOR) == model


def test_prefill_steps_are_learned_from_their_sums_alone():
    rng, model = random.Random(1), new_prefill_model(PRIOR)
    for k in range(24):
        sizes = [rng.randrange(100, 4_000) for _ in range(20)]
        window = summed(
            {"prefill_tokens": n, "sequences": 0, "kv_tokens": n, "seconds": 0.03 + 2e-4 * n}
            for n in sizes
        )
        sample = with_steps(PREFILL, 5.0 * k, prefill=window)
        model = learn_prefill(model, sample, prior=PRIOR, max_batched_tokens=8192)

    assert model.is_learned
    assert model.service_s(1_000.0) == pytest.approx(0.23, rel=0.04)
    assert model.service_s(4_000.0) == pytest.approx(0.83, rel=0.02)


def test_in_an_aggregated_pool_prefill_is_what_mixed_steps_take_beyond_their_decoding():
    rng = random.Random(1)
    both = dataclasses.replace(PREFILL, name="both", phase=Phase.BOTH)
    decode, prefill = new_decode_model(PRIOR), new_prefill_model(PRIOR)
    for k in range(48):
        mixed = summed(
            {
                "prefill_tokens": n,
                "sequences": b,
                "kv_tokens": 1_000.0 * b,
                "seconds": 0.02 + 2e-4 * n + 5e-4 * b + 3e-7 * 1_000.0 * b,
            }
            for n, b in ((rng.randrange(100, 2_000), rng.randrange(1, 40)) for _ in range(30))
        )
        sample = with_steps(both, 5.0 * k, decode=decode_window(rng), mixed=mixed)
        decode = learn_decode(decode, sample, prior=PRIOR)
        prefill = learn_prefill(
            prefill, sample, prior=PRIOR, max_batched_tokens=8192, decode=decode
        )

    assert prefill.service_s(200.0) == pytest.approx(0.06, rel=0.05)
    assert prefill.service_s(2_000.0) == pytest.approx(0.42, rel=0.02)


def test_a_window_with_preemptions_teaches_by_its_steps():
    spoiled = {"preemptions_per_s": 3.0, "finished_requests_per_s": 1.0}
    sample = with_steps(DECODE, 5.0, values=spoiled, decode=decode_window(random.Random(1)))

    assert learn_decode(new_decode_model(PRIOR), sample, prior=PRIOR).fit.total_weight == 1.0


def test_steps_beside_much_kv_that_does_not_run_teach_nothing():
    waiting = {"running_requests": 8.0, "deferred_requests": 3.0}
    sample = with_steps(DECODE, 5.0, values=waiting, decode=decode_window(random.Random(1)))
    model = new_decode_model(PRIOR)

    assert learn_decode(model, sample, prior=PRIOR) == model


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"seconds": float("nan")}, id="nan"),
        pytest.param({"seconds": float("inf")}, id="infinite"),
        pytest.param({"kv_tokens": -1.0}, id="negative"),
        pytest.param({"steps": 0.0}, id="work-of-no-step"),
        pytest.param({"sequences": 0.0}, id="no-work"),
        pytest.param({"seconds": 0.0}, id="no-time"),
    ],
)
def test_sums_that_no_steps_have_teach_nothing(odd):
    window = dataclasses.replace(decode_window(random.Random(1)), **odd)
    model = new_decode_model(PRIOR)

    assert learn_decode(model, with_steps(DECODE, 5.0, decode=window), prior=PRIOR) == model


def test_steps_are_written_down_exactly_and_what_was_written_without_them_is_read():
    sample = with_steps(DECODE, 5.0, decode=decode_window(random.Random(1)))
    seen = (make_observation(sample, at_s=5.0),)
    data = dump_observations(seen)
    plain = (make_observation(make_sample(DECODE, at_s=5.0), at_s=5.0),)
    older = dump_observations(plain).replace(b',"steps":null', b"")

    assert load_observations(data) == seen
    assert b"steps" not in older.replace(b"steps_per_s", b"")
    assert load_observations(older) == plain


@pytest.mark.parametrize(
    "is_held_out",
    [
        pytest.param(lambda n: n % 3 == 0, id="every-third-batch"),
        pytest.param(lambda n: n % 4 > 1, id="two-of-four"),
        pytest.param(lambda n: n > 12, id="larger-than-any-seen"),
    ],
)
def test_real_decode_steps_are_predicted_at_batches_that_the_fit_has_not_seen(is_held_out):
    found = judge_decode(read_steps(REAL.read_text().splitlines(), where=str(REAL)), is_held_out)

    assert found.steps_judged > 100
    assert found.median_error_ratio <= 0.25


@pytest.mark.parametrize(
    "is_held_out",
    [
        pytest.param(lambda n: n // 100 % 2 == 1, id="every-second-hundred"),
        pytest.param(lambda n: n > 800, id="longer-than-any-seen"),
    ],
)
def test_real_prefill_steps_are_predicted_at_sizes_that_the_fit_has_not_seen(is_held_out):
    found = judge_prefill(read_steps(REAL.read_text().splitlines(), where=str(REAL)), is_held_out)

    assert found.steps_judged > 50
    assert found.median_error_ratio <= 0.25


def test_the_last_line_of_a_log_may_be_half_written_but_no_other():
    line = '{"t":1,"prefill_tokens":0,"decode_sequences":2,"kv_tokens":9,"seconds":0.1}'

    assert len(read_steps([line, line[:20]], where="log")) == 1
    with pytest.raises(Misconfigured, match="line 1"):
        read_steps([line[:20], line], where="log")


def test_a_log_without_unseen_sizes_cannot_be_judged():
    line = '{"t":1,"prefill_tokens":0,"decode_sequences":2,"kv_tokens":9,"seconds":0.1}'

    with pytest.raises(Misconfigured, match="nothing can be judged"):
        judge_decode(read_steps([line], where="log"), lambda n: n > 2)
