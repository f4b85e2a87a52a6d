"""What engine steps held and took, as sums: enough for a fit of step time. Pure.

A step schedules prompt tokens (P) of new requests and one token or more for each running sequence
(S), while KV tokens (K) are resident, and keeps the engine for some seconds (t). Sums of these and
of their products, by kind of step, grow as steps end, and say as much to a least-squares fit as
the steps themselves would.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import add


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSums:
    """Sums over the steps of one kind. Times are seconds, `seconds_squared` seconds squared.

    `kv_tokens` counts resident KV in whole blocks, also that of requests which do not run yet.
    """

    steps: float = 0.0
    prefill_requests: float = 0.0
    prefill_tokens: float = 0.0
    decode_tokens: float = 0.0
    sequences: float = 0.0
    kv_tokens: float = 0.0
    seconds: float = 0.0
    prefill_tokens_squared: float = 0.0
    sequences_squared: float = 0.0
    kv_tokens_squared: float = 0.0
    seconds_squared: float = 0.0
    prefill_tokens_sequences: float = 0.0
    prefill_tokens_kv_tokens: float = 0.0
    sequences_kv_tokens: float = 0.0
    seconds_prefill_tokens: float = 0.0
    seconds_sequences: float = 0.0
    seconds_kv_tokens: float = 0.0


STEP_FIELDS = tuple(f.name for f in fields(StepSums))
"""The names of all sums, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReading:
    """Sums by kind of step: prompt tokens only, running sequences only, both.

    Of a page they run since the start of the process; of a window they are what it added, summed
    over the replicas that reported and never scaled up to those that did not.
    """

    prefill: StepSums
    decode: StepSums
    mixed: StepSums


def one_step(
    *, prefill_tokens: float, sequences: float, kv_tokens: float, seconds: float
) -> StepSums:
    """The sums of a single step whose sequences get one token each."""
    p, s, k, t = prefill_tokens, sequences, kv_tokens, seconds
    return StepSums(
        steps=1.0,
        prefill_requests=1.0 if p else 0.0,
        prefill_tokens=p,
        decode_tokens=s,
        sequences=s,
        kv_tokens=k,
        seconds=t,
        prefill_tokens_squared=p * p,
        sequences_squared=s * s,
        kv_tokens_squared=k * k,
        seconds_squared=t * t,
        prefill_tokens_sequences=p * s,
        prefill_tokens_kv_tokens=p * k,
        sequences_kv_tokens=s * k,
        seconds_prefill_tokens=p * t,
        seconds_sequences=s * t,
        seconds_kv_tokens=k * t,
    )


def added(one: StepSums, other: StepSums) -> StepSums:
    """The sums of both."""
    return _each(add, one, other)


def both_added(one: StepReading, other: StepReading) -> StepReading:
    """The sums of both, kind by kind."""
    return StepReading(
        prefill=added(one.prefill, other.prefill),
        decode=added(one.decode, other.decode),
        mixed=added(one.mixed, other.mixed),
    )


def grown(now: StepReading, before: StepReading | None) -> StepReading | None:
    """What steps added between two readings; `None` if a sum fell, which no sum of steps can.

    `before=None`: the process began within the window.
    """
    if before is None:
        return now if _can_be(now) else None
    found = StepReading(
        prefill=_each(_grown, now.prefill, before.prefill),
        decode=_each(_grown, now.decode, before.decode),
        mixed=_each(_grown, now.mixed, before.mixed),
    )
    return found if _can_be(found) else None


def _grown(now: float, before: float) -> float:
    return now - before


def _can_be(reading: StepReading) -> bool:
    return all(is_possible(sums) for sums in (reading.prefill, reading.decode, reading.mixed))


def is_possible(sums: StepSums) -> bool:
    """Whether steps can have these sums: finite, none negative, nothing without a step."""
    values = [getattr(sums, name) for name in STEP_FIELDS]
    if not all(0.0 <= value < math.inf for value in values):
        return False
    return sums.steps > 0.0 or not any(values)


def _each(combine: Callable[[float, float], float], one: StepSums, other: StepSums) -> StepSums:
    values = {n: combine(getattr(one, n), getattr(other, n)) for n in STEP_FIELDS}
    return StepSums(**values)
