"""What one replica can do, learned from the pool's own metrics. Pure: no clock, no network, no log.

Two models, each a value: how long a prefill step of n tokens lasts, and how long a decode step
lasts for a batch and the KV tokens that it reads. Both start from a prior and are corrected by
every window in which there was enough work; windows with preemptions, failures or low coverage
teach nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autoscaler.regression import Fit, empty_fit, learn_point, solve
from autoscaler.types import CapacityPrior
from serving.types import Phase, PhaseSample

FORGET_S = 900.0
LEARNED_AFTER_WEIGHT = 12.0  # windows (a minute of 5 s windows) before a pool may be sized down
_PREFILL_NOISE = 0.2  # of the mean: lengths differ, so one window's mean time does too
_DECODE_NOISE = 0.05
_LEARN_COVERAGE_RATIO = 0.75
_DEFERRED_SHARE = 0.25  # of the running requests: more wait for KV only when the network is slow


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillModel:
    """Seconds of a prefill step: `base_s + s_per_token * tokens`."""

    fit: Fit
    base_s: float
    s_per_token: float

    @property
    def is_learned(self) -> bool:
        """Whether enough windows of real work stand behind it."""
        return self.fit.total_weight >= LEARNED_AFTER_WEIGHT

    def service_s(self, tokens: float) -> float:
        """Seconds that a prompt of `tokens` takes alone in a step."""
        return self.base_s + self.s_per_token * tokens

    def tokens_per_s(self, prompt_tokens: float) -> float:
        """Tokens per second of a busy replica whose steps hold two prompts.

        Two, because a pool planned for its utilisation cap has short queues: larger steps would
        amortise the base better, but only when requests already wait.
        """
        tokens = 2.0 * max(prompt_tokens, 1.0)
        return tokens / self.service_s(tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeModel:
    """Seconds of a decode step: `base_s + batch * s_per_sequence + kv_tokens * s_per_kv_token`."""

    fit: Fit
    base_s: float
    s_per_sequence: float
    s_per_kv_token: float
    context_tokens_mean: float | None = None
    kv_capacity_tokens: float | None = None
    largest_batch: float = 0.0

    @property
    def is_learned(self) -> bool:
        """Whether enough windows of real work stand behind it."""
        return self.fit.total_weight >= LEARNED_AFTER_WEIGHT

    def s_per_request(self, context_tokens: float) -> float:
        """How much one more request of that context lengthens a step, in seconds."""
        return self.s_per_sequence + self.s_per_kv_token * context_tokens

    def step_s(self, output_tokens_per_s: float, context_tokens: float) -> float:
        """Step time of a replica that serves a token rate: by Little, batch = rate * step time.

        Infinite where the rate cannot be served at any batch.
        """
        share = self.s_per_request(context_tokens) * output_tokens_per_s
        return math.inf if share >= 1.0 else self.base_s / (1.0 - share)


def new_prefill_model(prior: CapacityPrior) -> PrefillModel:
    """A model that knows only its prior."""
    return PrefillModel(
        fit=empty_fit(2), base_s=prior.prefill_base_s, s_per_token=prior.prefill_s_per_token
    )


def new_decode_model(prior: CapacityPrior) -> DecodeModel:
    """A model that knows only its prior."""
    return DecodeModel(
        fit=empty_fit(3),
        base_s=prior.decode_base_s,
        s_per_sequence=prior.decode_s_per_sequence,
        s_per_kv_token=prior.decode_s_per_kv_token,
    )


def request_weighted_step_ratio(prompts_per_step: float) -> float:
    """How much larger the step is that a random request sits in than the mean step.

    If the prompts of a step are Poisson-distributed with at least one, of rate λ, the mean is
    λ / (1 - e^-λ), and the size-biased mean over the mean is (1 + λ) / mean.
    """
    mean = max(1.0, prompts_per_step)
    if mean < 1.0 + 1e-6:
        return 1.0
    rate = mean
    for _ in range(40):  # fixed point of λ = mean (1 - e^-λ); contracts for every mean over 1
        rate = mean * (1.0 - math.exp(-rate))
    return (1.0 + rate) / mean


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
    model: PrefillModel, sample: PhaseSample, *, prior: CapacityPrior, max_batched_tokens: int
) -> PrefillModel:
    """The model after one window: mean prefill time against the tokens of a request's own step."""
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


def learn_decode(model: DecodeModel, sample: PhaseSample, *, prior: CapacityPrior) -> DecodeModel:
    """The model after one window: mean gap between tokens against batch and resident KV.

    The batch is the one that the tokens saw (Little: rate times gap over the replicas), not the
    gauge of one instant; the context is resident KV over the requests that hold some: those running
    and those whose KV is still in flight. Where a quarter waits for KV, a window teaches nothing.
    """
    capacity = sample.kv_capacity_tokens.value
    replicas = max(1, sample.replicas_expected)
    if capacity is not None and capacity > 0.0:
        model = replace(model, kv_capacity_tokens=capacity / replicas)
    gap_s, rate = sample.itl_mean_s.value, sample.output_tokens_per_s.value
    kv, running = sample.kv_used_tokens.value, sample.running_requests.value
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
