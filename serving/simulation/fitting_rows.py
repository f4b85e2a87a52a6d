"""What the pages of a replica tell between two looks, as stretches that a profile is fitted to.

A stretch that tells nothing certain is left out. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from serving.step_sums import StepReading, added, grown
from serving.types import HistogramReading, ReplicaReading

FEWEST_GAPS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One stretch: `weight` observations that took `seconds` in all, and what each term counts.

    The model is seconds = sum of (term x its cost); both are sums over the stretch.
    """

    terms: tuple[float, ...]
    seconds: float
    weight: float


def prefill_rows(readings: Sequence[ReplicaReading], prompts: Sequence[int]) -> list[Row]:
    """Terms: prompts, their tokens, their tokens squared. Only stretches without shared steps.

    `prompts` are the lengths in the order in which they came; a stretch whose own sum of tokens
    says otherwise (somebody overtook) is left out.
    """
    rows: list[Row] = []
    first = next((r.prefill_time for r in readings if r.prefill_time is not None), None)
    if first is None:
        return rows
    for before, after in pairwise(readings):
        times = _growth(before.prefill_time, after.prefill_time)
        tokens = _growth(before.request_prompt_tokens, after.request_prompt_tokens)
        steps = _growth(before.step_tokens, after.step_tokens)
        if times is None or tokens is None or steps is None or before.prefill_time is None:
            continue
        start, count = int(before.prefill_time.count - first.count), int(times[0])
        own = prompts[start : start + count]
        if not count or steps[0] < count or len(own) != count or sum(own) != tokens[1]:
            continue
        rows.append(
            Row(
                terms=(float(count), float(sum(own)), float(sum(n * n for n in own))),
                seconds=times[1],
                weight=float(count),
            )
        )
    return rows


def decode_rows(readings: Sequence[ReplicaReading]) -> list[Row]:
    """Terms: gaps, gaps x batch, gaps x KV tokens.

    Batch and KV are exact where the step exporter was there; else the means of a stretch stand for
    them.
    """
    rows: list[Row] = []
    for before, after in pairwise(readings):
        gaps = _growth(before.itl, after.itl)
        if gaps is None or gaps[0] < FEWEST_GAPS:
            continue
        means = _step_means(before.steps, after.steps) or _page_means(before, after)
        if means is not None:
            terms = (gaps[0], gaps[0] * means[0], gaps[0] * means[1])
            rows.append(Row(terms=terms, seconds=gaps[1], weight=gaps[0]))
    return rows


def _step_means(
    before: StepReading | None, after: StepReading | None
) -> tuple[float, float] | None:
    """Batch and KV tokens as a gap sees them in the mean: a step of many has many gaps."""
    steps = grown(after, before) if before is not None and after is not None else None
    if steps is None:
        return None
    both = added(steps.decode, steps.mixed)
    if both.sequences <= 0.0:
        return None
    return (
        both.sequences_squared / both.sequences,
        both.sequences_kv_tokens / both.sequences,
    )


def _page_means(before: ReplicaReading, after: ReplicaReading) -> tuple[float, float] | None:
    """Tokens of a step, and KV in use at both ends, as the page itself tells them."""
    steps = _growth(before.step_tokens, after.step_tokens)
    capacity, used = after.kv_capacity_tokens, (before.kv_used_ratio, after.kv_used_ratio)
    if steps is None or not steps[0] or capacity is None or used[0] is None or used[1] is None:
        return None
    return steps[1] / steps[0], (used[0] + used[1]) / 2.0 * capacity


def transfer_rows(readings: Sequence[ReplicaReading]) -> list[Row]:
    """Terms: transfers, their bytes."""
    rows: list[Row] = []
    for before, after in pairwise(readings):
        times = _growth(before.kv_transfer_time, after.kv_transfer_time)
        sizes = _growth(before.kv_transfer_bytes, after.kv_transfer_bytes)
        if times is None or sizes is None or not times[0]:
            continue
        rows.append(Row(terms=(times[0], sizes[1]), seconds=times[1], weight=times[0]))
    return rows


def _growth(
    before: HistogramReading | None, after: HistogramReading | None
) -> tuple[float, float] | None:
    """By how much count and sum grew; `None` if unknown or started anew."""
    if before is None or after is None or after.count < before.count:
        return None
    return after.count - before.count, after.sum - before.sum
