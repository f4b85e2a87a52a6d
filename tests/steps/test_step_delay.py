"""The stated slowness: how long a step of some content sleeps, and which steps do not."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest


def scheduled(*, new=(), cached=()):
    """`new`: tokens of each; `cached`: (tokens, computed before, output before) of each."""
    tokens = {f"n{k}": n for k, n in enumerate(new)}
    tokens |= {f"c{k}": n for k, (n, _, _) in enumerate(cached)}
    return SimpleNamespace(
        total_num_scheduled_tokens=sum(tokens.values()),
        num_scheduled_tokens=tokens,
        scheduled_new_reqs=[SimpleNamespace(req_id=f"n{k}") for k in range(len(new))],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[f"c{k}" for k in range(len(cached))],
            num_computed_tokens=[computed for _, computed, _ in cached],
            num_output_tokens=[output for _, _, output in cached],
        ),
    )


def slept(delay, step, **figures):
    naps: list[float] = []
    run = delay.delayed(lambda self, output: "done", delay.StepDelay(**figures), naps.append)

    assert run(None, step) == "done"
    return naps


# two new prompts of 100 and 50; the second part (80) of a prompt; sequences of 301 and 411 tokens
STEP = {"new": (100, 50), "cached": ((80, 512, 0), (1, 300, 4), (1, 410, 9))}


@pytest.mark.parametrize(
    ("figures", "seconds"),
    [
        pytest.param({"base_seconds": 0.02}, 0.02, id="base"),
        pytest.param({"seconds_per_prefill_token": 0.001}, 0.230, id="prompt-tokens"),
        pytest.param({"seconds_per_sequence": 0.01}, 0.02, id="sequences"),
        pytest.param({"seconds_per_kv_token": 1e-4}, 0.0712, id="kv-tokens"),
    ],
)
def test_a_step_sleeps_by_what_it_holds(delay, figures, seconds):
    assert slept(delay, scheduled(**STEP), **figures) == [pytest.approx(seconds)]


def test_a_step_that_schedules_nothing_is_not_delayed(delay):
    assert slept(delay, scheduled(), base_seconds=1.0) == []


def test_the_worker_is_wrapped_once_and_only_if_the_variable_is_set(delay, monkeypatch):
    worker = sys.modules["vllm.v1.worker.worker_base"].WorkerWrapperBase
    plain = worker.execute_model
    monkeypatch.delenv(delay.VARIABLE, raising=False)
    delay.register()

    assert worker.execute_model is plain

    monkeypatch.setenv(delay.VARIABLE, '{"base_seconds": 0.001}')
    delay.register()
    wrapped = worker.execute_model
    delay.register()

    assert wrapped is not plain
    assert worker.execute_model is wrapped
    assert worker().execute_model(scheduled())[0] == "executed"


@pytest.mark.parametrize(
    "text",
    [
        "fast",
        "[]",
        '{"base": 1}',
        '{"base_seconds": -1}',
        '{"base_seconds": "1"}',
        '{"base_seconds": true}',
        '{"base_seconds": NaN}',
        '{"base_seconds": Infinity}',
    ],
)
def test_a_delay_that_cannot_be_is_refused_by_its_name(delay, text, monkeypatch):
    monkeypatch.setenv(delay.VARIABLE, text)

    with pytest.raises(ValueError, match="PHASEWISE_STEP_DELAY"):
        delay.register()
