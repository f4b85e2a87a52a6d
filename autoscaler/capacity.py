"""What one replica can do. Pure: no clock, no network, no log.

Two models, each a value: how long a prefill step of n tokens lasts, and how long a decode step
lasts for a batch and the KV tokens that it reads. Both start from a prior; windows correct them in
`learn_capacity`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autoscaler.regression import Fit, empty_fit
from autoscaler.types import CapacityPrior

LEARNED_AFTER_WEIGHT = 12.0  # windows (a minute of 5 s windows) before a pool may be sized down


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
