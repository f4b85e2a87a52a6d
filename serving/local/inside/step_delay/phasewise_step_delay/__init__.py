"""A stated slowness: each engine step sleeps as long as `PHASEWISE_STEP_DELAY` says.

A general plugin of vLLM, loaded in every process of it; only workers execute steps. The sleep
comes after the model's own work, in the worker's main thread: threads that move KV go on.
"""

from __future__ import annotations

import functools
import json
import math
import os
import time
from typing import Any, NamedTuple

VARIABLE = "PHASEWISE_STEP_DELAY"


class StepDelay(NamedTuple):
    """Seconds of a step's sleep: `base + prefill tokens + sequences + KV tokens`, each by its rate.

    KV tokens are the context of the sequences past their prompt, with the token of this step.
    """

    base_seconds: float = 0.0
    seconds_per_prefill_token: float = 0.0
    seconds_per_sequence: float = 0.0
    seconds_per_kv_token: float = 0.0

    def seconds(self, prefill_tokens: int, sequences: int, kv_tokens: int) -> float:
        """How long a step of this content sleeps."""
        return (
            self.base_seconds
            + self.seconds_per_prefill_token * prefill_tokens
            + self.seconds_per_sequence * sequences
            + self.seconds_per_kv_token * kv_tokens
        )


def read_delay(text: str) -> StepDelay:
    """The delay that the variable states. ValueError, in words, if it states none."""
    try:
        told = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{VARIABLE} is not JSON: {error}") from error
    if not isinstance(told, dict) or set(told) - set(StepDelay._fields):
        raise ValueError(f"{VARIABLE} takes {', '.join(StepDelay._fields)}, not {text!r}")
    for name, value in told.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{VARIABLE}: {name} is {value!r}, not a number of seconds")
        if not 0.0 <= value < math.inf:
            raise ValueError(f"{VARIABLE}: {name} is {value!r}, not a number of seconds")
    return StepDelay(**told)


def content_of(scheduler_output: Any) -> tuple[int, int, int]:
    """Prompt tokens, sequences past their prompt, and the KV tokens of these, of one step.

    As vLLM's own iteration details count: a request that is new, or has no output yet, is prefill.
    """
    scheduled = scheduler_output.num_scheduled_tokens
    cached = scheduler_output.scheduled_cached_reqs
    prefill = sum(scheduled[new.req_id] for new in scheduler_output.scheduled_new_reqs)
    sequences = kv_tokens = 0
    states = zip(cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, strict=True)
    for request, computed, output in states:
        tokens = scheduled.get(request, 0)
        if output == 0:
            prefill += tokens
        else:
            sequences += 1
            kv_tokens += computed + tokens
    return prefill, sequences, kv_tokens


def delayed(execute: Any, delay: StepDelay, sleep: Any = time.sleep) -> Any:
    """`execute_model` that sleeps after steps which scheduled tokens."""

    @functools.wraps(execute)
    def execute_model(self: Any, scheduler_output: Any, *rest: Any, **named: Any) -> Any:
        if scheduler_output.total_num_scheduled_tokens <= 0:
            return execute(self, scheduler_output, *rest, **named)
        seconds = delay.seconds(*content_of(scheduler_output))
        answer = execute(self, scheduler_output, *rest, **named)
        sleep(seconds)
        return answer

    execute_model.is_delayed = True  # type: ignore[attr-defined]
    return execute_model


def register() -> None:
    """Delay the workers of this process, once, if the environment asks for it."""
    text = os.environ.get(VARIABLE)
    if not text:
        return
    delay = read_delay(text)
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    if not getattr(WorkerWrapperBase.execute_model, "is_delayed", False):
        WorkerWrapperBase.execute_model = delayed(WorkerWrapperBase.execute_model, delay)
