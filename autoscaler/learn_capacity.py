"""The two capacity models, learned from a pool's metrics. Pure: no clock, no network, no log.

Every window in which there was enough work corrects them; windows with preemptions, failures or low
coverage teach nothing. Where engines tell of their steps (`steps` of a sample), these teach instead
of mean times: each step says what it held and took, whatever else spoiled the window.
"""

from __future__ import annotations

from dataclasses import replace

from autoscaler.capacity import DecodeModel, PrefillModel, request_weighted_step_ratio
from autoscaler.regression import Fit, Moments, learn_moments, learn_point, solve
from autoscaler.step_fit import (
    decode_moments,
    decode_steps,
    prefill_moments,
    prefill_steps,
    weight_of,
)
from autoscaler.types import CapacityPrior
from serving.types import Phase, PhaseSample

FORGET_S = 900.0
_PREFILL_NOISE = 0.2  # of the mean: lengths differ, so one window's mean time does too
_DECODE_NOISE = 0.05
_STEP_NOISE = 0.02  # as means over many steps: little is left of what one suffers
_LEARN_COVERAGE_RATIO = 0.75
_DEFERRED_SHARE = 0.25  # of the running requests: more wait for KV only when the network is slow


def is_teaching(sample: PhaseSample) -> bool:
    """Whether a window may teach: covered, and not spoiled by preemptions or failed transfers."""
    spoiled = (sample.preemptions_per_s.value or 0.0) + (
        sample.kv_transfer_failures_per_s.value or 0.0
    )
    coverage = sample.finished_requests_per_s.coverage_ratio
    return spoiled == 0.0 and coverage >= _LEARN_COVERAGE_RATIO


def own_step_tokens(sample: PhaseSample, *, max_batched_tokens: int) -> float | None:
    """The prompt tokens of the step that a random request of the window was prefilled in.

    In a prefill pool every step is a prefill step, so the mean step tells. In an aggregated pool
    most steps only decode and would make the step look a hundred times smaller than it is; there
    the request's own prompt is taken, which is right while prompts rarely share a step and makes
    a replica look slower than it is when they do.
    """
    finished = sample.finished_requests_per_s.value
    if not finished:
        return None
    if sample.pool.phase is Phase.BOTH:
        computed = sample.computed_prompt_tokens_per_s.value
        return computed / finished if computed else None
    steps, step_tokens = sample.steps_per_s.value, sample.step_tokens_per_s.value
    if not steps or not step_tokens:
        return None
    share = request_weighted_step_ratio(max(1.0, finished / steps))
    return min(step_tokens / steps * share, float(max_batched_tokens))


def learn_prefill(
    model: PrefillModel,
    sample: PhaseSample,
    *,
    prior: CapacityPrior,
    max_batched_tokens: int,
    decode: DecodeModel | None = None,
) -> PrefillModel:
    """The model after one window: mean prefill time against the tokens of a request's own step.

    With the step exporter, the time of the steps themselves; in an aggregated pool less what
    `decode` says that the sequences in the same step took.
    """
    steps = prefill_steps(sample.steps, sample.pool.phase)
    if steps is not None:
        moments = prefill_moments(
            steps,
            s_per_sequence=decode.s_per_sequence if decode is not None else 0.0,
            s_per_kv_token=decode.s_per_kv_token if decode is not None else 0.0,
        )
        return _learn_prefill_steps(model, moments, sample, prior=prior)
    time_s, finished = sample.prefill_time_mean_s.value, sample.finished_requests_per_s.value
    tokens = own_step_tokens(sample, max_batched_tokens=max_batched_tokens)
    if not is_teaching(sample) or not time_s or time_s < 0.0 or not finished or not tokens:
        return model
    fit = learn_point(
        model.fit,
        (1.0, tokens),
        time_s,
        weight=min(1.0, finished * sample.window_s / 20.0),
        at_s=sample.window_start_s + sample.window_s,
        forget_s=FORGET_S,
    )
    base_s, s_per_token = solve(
        fit,
        prior=(prior.prefill_base_s, prior.prefill_s_per_token),
        spread_ratio=prior.spread_ratio,
        noise=_PREFILL_NOISE * time_s,
    )
    return replace(model, fit=fit, base_s=base_s, s_per_token=s_per_token)


def _learn_prefill_steps(
    model: PrefillModel, moments: Moments, sample: PhaseSample, *, prior: CapacityPrior
) -> PrefillModel:
    fit = _with_window(model.fit, moments, sample)
    base_s, s_per_token = solve(
        fit,
        prior=(prior.prefill_base_s, prior.prefill_s_per_token),
        spread_ratio=prior.spread_ratio,
        noise=_STEP_NOISE * abs(moments.moment[0]),
    )
    return replace(model, fit=fit, base_s=base_s, s_per_token=s_per_token)


def _with_window(fit: Fit, moments: Moments, sample: PhaseSample) -> Fit:
    return learn_moments(
        fit,
        moments,
        weight=weight_of(moments),
        at_s=sample.window_start_s + sample.window_s,
        forget_s=FORGET_S,
    )


def learn_decode(model: DecodeModel, sample: PhaseSample, *, prior: CapacityPrior) -> DecodeModel:
    """The model after one window: mean gap between tokens against batch and resident KV.

    The batch is the one that the tokens saw (Little: rate times gap over the replicas), not the
    gauge of one instant; the context is resident KV over the requests that hold some: those running
    and those whose KV is still in flight. Where a quarter waits for KV, a window teaches nothing.
    With the step exporter the steps themselves teach, of all resident KV the running ones' share.
    """
    capacity = sample.kv_capacity_tokens.value
    replicas = max(1, sample.replicas_expected)
    if capacity is not None and capacity > 0.0:
        model = replace(model, kv_capacity_tokens=capacity / replicas)
    gap_s, rate = sample.itl_mean_s.value, sample.output_tokens_per_s.value
    kv, running = sample.kv_used_tokens.value, sample.running_requests.value
    steps = decode_steps(sample.steps, sample.pool.phase)
    if steps is not None:
        waiting = sample.deferred_requests.value or 0.0
        if waiting > _DEFERRED_SHARE * (running or 0.0):
            return model
        share = running / (running + waiting) if running else 1.0
        return _learn_decode_steps(
            model, decode_moments(steps, kv_share=share), sample, prior=prior
        )
    if not is_teaching(sample) or not gap_s or not rate or kv is None or not running:
        return model
    deferred = sample.deferred_requests.value or 0.0
    if deferred > _DEFERRED_SHARE * running:
        return model
    batch = rate * gap_s / replicas
    context = kv / (running + deferred)
    at_s = sample.window_start_s + sample.window_s
    fit = learn_point(
        model.fit,
        (1.0, batch, batch * context),
        gap_s,
        weight=min(1.0, batch / 4.0),
        at_s=at_s,
        forget_s=FORGET_S,
    )
    base_s, per_sequence, per_token = solve(
        fit,
        prior=(prior.decode_base_s, prior.decode_s_per_sequence, prior.decode_s_per_kv_token),
        spread_ratio=prior.spread_ratio,
        noise=_DECODE_NOISE * gap_s,
    )
    previous = model.context_tokens_mean
    blended = context if previous is None else previous + 0.1 * (context - previous)
    return replace(
        model,
        fit=fit,
        base_s=base_s,
        s_per_sequence=per_sequence,
        s_per_kv_token=per_token,
        context_tokens_mean=blended,
        largest_batch=max(model.largest_batch * 0.999, batch),
    )


def _learn_decode_steps(
    model: DecodeModel, moments: Moments, sample: PhaseSample, *, prior: CapacityPrior
) -> DecodeModel:
    """The model after a window of steps; batch and context are the window's own means."""
    fit = _with_window(model.fit, moments, sample)
    mean_s, batch, kv_tokens = moments.moment[0], moments.gram[0][1], moments.gram[0][2]
    base_s, per_sequence, per_token = solve(
        fit,
        prior=(prior.decode_base_s, prior.decode_s_per_sequence, prior.decode_s_per_kv_token),
        spread_ratio=prior.spread_ratio,
        noise=_STEP_NOISE * mean_s,
    )
    context, previous = kv_tokens / batch, model.context_tokens_mean
    return replace(
        model,
        fit=fit,
        base_s=base_s,
        s_per_sequence=per_sequence,
        s_per_kv_token=per_token,
        context_tokens_mean=context if previous is None else previous + 0.1 * (context - previous),
        largest_batch=max(model.largest_batch * 0.999, batch),
    )
