"""How well step times are predicted at batches that the fit has not seen.

Takes single steps (the step exporter writes them where `PHASEWISE_STEP_LOG` is set), learns from
some sizes exactly as the control plane does, through sums of windows, and predicts each step of
the other sizes. Pure: no clock, no network, no log.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from autoscaler.capacity import (
    DecodeModel,
    PrefillModel,
    new_decode_model,
    new_prefill_model,
)
from autoscaler.learn_capacity import learn_decode, learn_prefill
from autoscaler.types import CapacityPrior
from serving.errors import Misconfigured
from serving.step_sums import StepReading, StepSums, added, one_step
from serving.types import Phase, PhaseSample, PoolId

_WINDOW_S = 5.0
_PRIOR = CapacityPrior()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """One step of the raw log. Sizes are what was scheduled, `kv_tokens` what was resident."""

    at_s: float
    prefill_tokens: int
    decode_sequences: int
    kv_tokens: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepJudgement:
    """Relative errors of steps at unseen sizes: |predicted - true| / true.

    `by_size` holds for each unseen size how many steps it had and their median error. `fitted`
    are the coefficients: base, and then seconds per prompt token, or per sequence and KV token.
    """

    fitted: tuple[float, ...]
    steps_fitted: int
    steps_judged: int
    median_error_ratio: float
    by_size: tuple[tuple[int, int, float], ...]


def read_steps(lines: Iterable[str], *, where: str) -> tuple[LoggedStep, ...]:
    """The steps of a raw log, of which the last line may be half written; or Misconfigured."""
    found: list[LoggedStep] = []
    kept = [line for line in lines if line.strip()]
    for number, line in enumerate(kept, start=1):
        try:
            told = json.loads(line)
            step = LoggedStep(
                at_s=float(told["t"]),
                prefill_tokens=int(told["prefill_tokens"]),
                decode_sequences=int(told["decode_sequences"]),
                kv_tokens=float(told["kv_tokens"]),
                seconds=float(told["seconds"]),
            )
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            if number == len(kept):
                break
            raise Misconfigured(
                "a line of the step log cannot be read",
                where=f"{where}, line {number}",
                found=line[:80],
                expected="a step as the step exporter writes it",
            ) from error
        if 0.0 < step.seconds < math.inf:
            found.append(step)
    return tuple(found)


def judge_decode(
    steps: Sequence[LoggedStep],
    is_held_out: Callable[[int], bool],
    *,
    prior: CapacityPrior = _PRIOR,
) -> StepJudgement:
    """Learn from decode steps, and predict those whose batch `is_held_out`."""
    decoding = [s for s in steps if s.decode_sequences and not s.prefill_tokens]
    seen = [s for s in decoding if not is_held_out(s.decode_sequences)]
    model: DecodeModel = new_decode_model(prior)
    for sample in _samples(seen, Phase.DECODE):
        model = learn_decode(model, sample, prior=prior)

    def predicted_s(step: LoggedStep) -> float:
        return (
            model.base_s
            + model.s_per_sequence * step.decode_sequences
            + model.s_per_kv_token * step.kv_tokens
        )

    unseen = [s for s in decoding if is_held_out(s.decode_sequences)]
    sized = [(s.decode_sequences, s, predicted_s(s)) for s in unseen]
    fitted = (model.base_s, model.s_per_sequence, model.s_per_kv_token)
    return _judged(sized, fitted=fitted, steps_fitted=len(seen))


def judge_prefill(
    steps: Sequence[LoggedStep],
    is_held_out: Callable[[int], bool],
    *,
    prior: CapacityPrior = _PRIOR,
) -> StepJudgement:
    """Learn from steps of prompt tokens alone, and predict those whose tokens `is_held_out`."""
    prefilling = [s for s in steps if s.prefill_tokens and not s.decode_sequences]
    seen = [s for s in prefilling if not is_held_out(s.prefill_tokens)]
    model: PrefillModel = new_prefill_model(prior)
    for sample in _samples(seen, Phase.PREFILL):
        model = learn_prefill(model, sample, prior=prior, max_batched_tokens=2**31)
    unseen = [s for s in prefilling if is_held_out(s.prefill_tokens)]
    sized = [(s.prefill_tokens, s, model.service_s(float(s.prefill_tokens))) for s in unseen]
    return _judged(sized, fitted=(model.base_s, model.s_per_token), steps_fitted=len(seen))


def _samples(steps: Sequence[LoggedStep], phase: Phase) -> Iterable[PhaseSample]:
    """One sample for each stretch of `_WINDOW_S` in which there were steps, as a scrape sees it."""
    windows: dict[int, StepSums] = {}
    for step in steps:
        sums = one_step(
            prefill_tokens=float(step.prefill_tokens),
            sequences=float(step.decode_sequences),
            kv_tokens=step.kv_tokens,
            seconds=step.seconds,
        )
        index = math.floor(step.at_s / _WINDOW_S)
        windows[index] = added(windows[index], sums) if index in windows else sums
    nothing = StepReading(prefill=StepSums(), decode=StepSums(), mixed=StepSums())
    pool = PoolId(tier="log", name=phase.value, phase=phase, variant="log")
    for index in sorted(windows):
        sums = windows[index]
        yield PhaseSample(
            pool=pool,
            window_start_s=index * _WINDOW_S,
            window_s=_WINDOW_S,
            replicas_expected=1,
            replicas_reporting=1,
            steps=replace(nothing, prefill=sums)
            if phase is Phase.PREFILL
            else replace(nothing, decode=sums),
        )


def _judged(
    sized: Sequence[tuple[int, LoggedStep, float]],
    *,
    fitted: tuple[float, ...],
    steps_fitted: int,
) -> StepJudgement:
    if not sized or not steps_fitted:
        raise Misconfigured(
            "nothing can be judged",
            where="the step log",
            found=f"{steps_fitted} steps to fit and {len(sized)} to predict",
            expected="some of both",
        )
    errors: dict[int, list[float]] = {}
    for size, step, predicted_s in sized:
        errors.setdefault(size, []).append(abs(predicted_s - step.seconds) / step.seconds)
    return StepJudgement(
        fitted=fitted,
        steps_fitted=steps_fitted,
        steps_judged=len(sized),
        median_error_ratio=median(e for each in errors.values() for e in each),
        by_size=tuple((n, len(errors[n]), median(errors[n])) for n in sorted(errors)),
    )
