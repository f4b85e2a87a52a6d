"""Step time from the sums of the step exporter: the same models as without it, told better.

What a mean gap between tokens says of the mean batch, these sums say of every step: how long it
took by its prompt tokens, sequences and resident KV. So steps of one kind are fitted by themselves,
windows with preemptions teach too, and prefill steps of an aggregated pool are seen.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from autoscaler.regression import Moments
from serving.step_sums import StepReading, StepSums, added, is_possible
from serving.types import Phase

LEAST_STEPS = 1.0
"""Fewer steps in a window are no window of work."""
FULL_WEIGHT_STEPS = 20.0
"""From so many steps on a window counts fully. More would not say more: they share its weather."""


def weight_of(moments: Moments) -> float:
    """What a window's steps count for."""
    return min(1.0, moments.count / FULL_WEIGHT_STEPS)


def decode_moments(sums: StepSums, *, kv_share: float = 1.0) -> Moments:
    """For `t = base + S * per_sequence + K * per_kv_token`.

    `kv_share` is the part of the resident KV that running sequences read.
    """
    n, f = sums.steps, kv_share
    s, k = sums.sequences / n, f * sums.kv_tokens / n
    sk = f * sums.sequences_kv_tokens / n
    return Moments(
        count=n,
        gram=(
            (1.0, s, k),
            (s, sums.sequences_squared / n, sk),
            (k, sk, f * f * sums.kv_tokens_squared / n),
        ),
        moment=(
            sums.seconds / n,
            sums.seconds_sequences / n,
            f * sums.seconds_kv_tokens / n,
        ),
        square=sums.seconds_squared / n,
    )


def prefill_moments(
    sums: StepSums, *, s_per_sequence: float = 0.0, s_per_kv_token: float = 0.0
) -> Moments:
    """For `t = base + P * per_token`, with the time of the decoding in the same steps taken off."""
    n, b, c = sums.steps, s_per_sequence, s_per_kv_token
    p = sums.prefill_tokens / n
    t = (sums.seconds - b * sums.sequences - c * sums.kv_tokens) / n
    pt = (
        sums.seconds_prefill_tokens
        - b * sums.prefill_tokens_sequences
        - c * sums.prefill_tokens_kv_tokens
    ) / n
    tt = (
        sums.seconds_squared
        + b * b * sums.sequences_squared
        + c * c * sums.kv_tokens_squared
        + 2.0 * b * c * sums.sequences_kv_tokens
        - 2.0 * b * sums.seconds_sequences
        - 2.0 * c * sums.seconds_kv_tokens
    ) / n
    return Moments(
        count=n,
        gram=((1.0, p), (p, sums.prefill_tokens_squared / n)),
        moment=(t, pt),
        square=max(0.0, tt),
    )


def first_tokens_as_sequences(sums: StepSums) -> StepSums:
    """Steps in which every prompt token is a sequence's first: its KV came from elsewhere.

    vLLM counts a request's first step as prefill. Where its KV was received that is one token,
    and the step is a decode step of one more sequence.
    """
    p, s = sums.prefill_tokens, sums.sequences
    return StepSums(
        steps=sums.steps,
        decode_tokens=sums.decode_tokens + p,
        sequences=s + p,
        kv_tokens=sums.kv_tokens,
        seconds=sums.seconds,
        sequences_squared=sums.sequences_squared
        + 2.0 * sums.prefill_tokens_sequences
        + sums.prefill_tokens_squared,
        kv_tokens_squared=sums.kv_tokens_squared,
        seconds_squared=sums.seconds_squared,
        sequences_kv_tokens=sums.sequences_kv_tokens + sums.prefill_tokens_kv_tokens,
        seconds_sequences=sums.seconds_sequences + sums.seconds_prefill_tokens,
        seconds_kv_tokens=sums.seconds_kv_tokens,
    )


def decode_steps(reading: StepReading | None, phase: Phase) -> StepSums | None:
    """The steps that tell how long decoding takes; `None` if there are too few, or none can be."""
    if reading is None:
        return None
    sums = reading.decode
    if phase is Phase.DECODE:
        for other in (reading.mixed, reading.prefill):
            if other.steps and other.prefill_tokens == other.prefill_requests:
                sums = added(sums, first_tokens_as_sequences(other))
    return sums if _is_work(sums, sums.sequences) else None


def prefill_steps(reading: StepReading | None, phase: Phase) -> StepSums | None:
    """The steps that tell how long prefill takes; in an aggregated pool also those that decode."""
    if reading is None:
        return None
    sums = added(reading.prefill, reading.mixed) if phase is Phase.BOTH else reading.prefill
    return sums if _is_work(sums, sums.prefill_tokens) else None


def _is_work(sums: StepSums, work: float) -> bool:
    return is_possible(sums) and sums.steps >= LEAST_STEPS and work > 0.0 and sums.seconds > 0.0
