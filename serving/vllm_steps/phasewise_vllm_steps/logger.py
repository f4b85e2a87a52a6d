"""The plugin class: takes what vLLM tells after each step, and adds it to the series.

Where vLLM tells nothing of a step (no `--enable-logging-iteration-details`, or a version without
it) `phasewise_step_exporter_info` says so in words, and the sums are absent: unknown, never zero.
Nothing that happens here may end the engine's output loop, which is what an error in it would do.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

from phasewise_vllm_steps import __version__
from phasewise_vllm_steps.raw_log import RawLog
from phasewise_vllm_steps.series import StepSeries
from phasewise_vllm_steps.step import Step, StepClock

log = logging.getLogger(__name__)

NO_DETAILS = "this vLLM tells nothing of single steps (0.32 does): step times are unknown"
NOT_ASKED = "vLLM runs without --enable-logging-iteration-details: step times are unknown"
NO_CAPACITY = "vLLM does not say how many tokens its KV cache holds: steps are not counted"


def problem_of(vllm_config: Any) -> str:
    """Why this engine's steps cannot be known; empty if they can."""
    observability = getattr(vllm_config, "observability_config", None)
    asked = getattr(observability, "enable_logging_iteration_details", None)
    if asked is None:
        return NO_DETAILS
    return "" if asked else NOT_ASKED


def kv_capacity_tokens(vllm_config: Any) -> float | None:
    """Tokens that the KV cache holds, known once the engine has started; `None` before."""
    cache = vllm_config.cache_config
    told = getattr(cache, "kv_cache_size_tokens", None)
    if told:
        return float(told)
    blocks, size = getattr(cache, "num_gpu_blocks", None), getattr(cache, "block_size", None)
    return float(blocks * size) if blocks and size else None


def clock_of(vllm_config: Any) -> StepClock:
    """A clock for the way in which this engine steps."""
    scheduler = getattr(vllm_config, "scheduler_config", None)
    parallel = getattr(vllm_config, "parallel_config", None)
    return StepClock(
        overlapped=bool(getattr(scheduler, "async_scheduling", False)),
        in_core=getattr(parallel, "distributed_executor_backend", None) == "uni",
        pipelined=(getattr(parallel, "pipeline_parallel_size", 1) or 1) > 1,
    )


class StepLogger(StatLoggerBase):  # type: ignore[misc, unused-ignore]
    """One engine's steps. vLLM makes it, and calls `record` after each step from one thread."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        self._config = vllm_config
        self._engine = engine_index
        self._model = str(vllm_config.model_config.served_model_name)
        self._clock = clock_of(vllm_config)
        self._capacity: float | None = None
        self._kv_used_ratio = 0.0
        self._add: Any = None
        self._leave_out: Any = None
        self._raw: RawLog | None = None
        self._said = ""
        self._stopped = False
        self._series = StepSeries.of_process()
        problem = problem_of(vllm_config)
        self._say(problem)
        if problem:
            self._stopped = True
            return
        self._add = self._series.adder(self._model, str(engine_index))
        self._leave_out = self._series.left_out(self._model, str(engine_index))
        try:
            self._raw = RawLog.from_environment()
        except OSError as error:
            log.warning("the step log cannot be written: %s", error)

    def record(
        self,
        scheduler_stats: Any = None,
        iteration_stats: Any = None,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
        **_: Any,
    ) -> None:
        """Add the step that vLLM tells of, if it does. Never raises."""
        if self._stopped or scheduler_stats is None:
            return
        try:
            self._record(scheduler_stats, iteration_stats, time.monotonic())
        except Exception as error:  # noqa: BLE001 - it would end the engine's output loop
            self._stopped = True
            self._say(f"stopped: {type(error).__name__}: {error}: steps are no longer counted")

    def log_engine_initialized(self) -> None:
        """vLLM has started; nothing to do."""

    def _record(self, scheduler_stats: Any, iteration_stats: Any, now_s: float) -> None:
        before, after = self._kv_used_ratio, scheduler_stats.kv_cache_usage
        self._kv_used_ratio = after
        details = scheduler_stats.iteration_details
        if details is None or getattr(details, "is_dummy", False):
            return  # nothing was scheduled, or a rank that keeps step with others
        elapsed_s = details.elapsed_ms / 1000.0
        waiting = getattr(scheduler_stats, "num_waiting_reqs", 0)  # those that could be scheduled
        told = self._clock.time(
            index=getattr(details, "iteration_index", None),
            elapsed_s=elapsed_s,
            gaps_s=getattr(iteration_stats, "inter_token_latencies_iter", None) or (),
            prefills_s=[
                ended.prefill_time
                for ended in getattr(iteration_stats, "finished_requests", None) or ()
                if ended.num_generation_tokens == 1  # of others it was in an earlier step
            ],
            now_s=now_s,
            leaves_work=scheduler_stats.num_running_reqs + waiting > 0,
        )
        if told is None:
            self._leave_out(details.num_ctx_tokens, details.num_generation_tokens)
            return
        if self._capacity is None:
            self._capacity = kv_capacity_tokens(self._config)
            if self._capacity is None:
                self._say(NO_CAPACITY)
                return
            self._say("")
        step = Step(
            prefill_requests=details.num_ctx_requests,
            prefill_tokens=details.num_ctx_tokens,
            decode_sequences=details.num_generation_requests,
            decode_tokens=details.num_generation_tokens,
            kv_tokens=max(before, after) * self._capacity,  # what ended in it is gone after it
            seconds=told.seconds,
        )
        self._add(step)
        if self._raw is not None:
            self._raw.write(step, engine=self._engine, told_by=told.told_by, elapsed_s=elapsed_s)

    def _say(self, problem: str) -> None:
        self._series.say(self._model, str(self._engine), __version__, problem, self._said)
        if problem and problem != self._said:
            log.warning("phasewise steps: %s", problem)
        self._said = problem
