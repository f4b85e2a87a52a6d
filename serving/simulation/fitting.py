"""An engine profile out of the readings of one real prefill and one real decode replica.

Between two pages a replica tells sums: seconds, tokens, steps. Each kind of time is fitted as a sum
of terms that cannot be negative, by least squares over those stretches. What a stretch tells only
in the mean (batch and KV of its steps) is used as that mean. It does not judge the fit.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from serving.errors import Misconfigured
from serving.simulation.fitting_rows import Row, decode_rows, prefill_rows, transfer_rows
from serving.simulation.profile import EngineProfile, Figure
from serving.types import HistogramReading, ReplicaReading, StartStage

FEWEST_ROWS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Costs in the order of the terms, and the mean error of a stretch relative to its mean."""

    costs: tuple[float, ...]
    rows: int
    error_ratio: float


def non_negative_fit(rows: Sequence[Row], *, what: str) -> Fit:
    """Least squares with costs of at least 0: the best of all choices of terms that are allowed.

    A stretch counts by the square root of its observations, whose mean has that much less noise.
    """
    if len(rows) < FEWEST_ROWS:
        raise _too_little(what, len(rows))
    terms = np.array([row.terms for row in rows], dtype=float)
    seconds = np.array([row.seconds for row in rows], dtype=float)
    scale = 1.0 / np.sqrt(np.array([max(row.weight, 1.0) for row in rows]))
    best: tuple[float, NDArray[np.float64]] | None = None
    width = terms.shape[1]
    for size in range(1, width + 1):
        for chosen in combinations(range(width), size):
            part = terms[:, chosen] * scale[:, None]
            costs, _, _, _ = np.linalg.lstsq(part, seconds * scale, rcond=None)
            if np.any(costs < 0.0):
                continue
            miss = float(np.sum((part @ costs - seconds * scale) ** 2))
            if best is None or miss < best[0] * (1.0 - 1e-9):
                whole = np.zeros(width)
                whole[list(chosen)] = costs
                best = (miss, whole)
    if best is None:
        raise _too_little(what, len(rows))
    costs = best[1]
    missed = np.abs(terms @ costs - seconds)
    return Fit(
        costs=tuple(float(cost) for cost in costs),
        rows=len(rows),
        error_ratio=float(missed.sum() / seconds.sum()) if seconds.sum() > 0.0 else 0.0,
    )


def fit_profile(
    *,
    name: str,
    model: str,
    accelerator: str,
    prefill: Sequence[ReplicaReading],
    decode: Sequence[ReplicaReading],
    prompts: Sequence[int],
    start_s: float | None,
    source: str,
) -> EngineProfile:
    """A profile with every figure tagged; `source` says where and when, for each of them.

    Raises Misconfigured where the readings tell too little (fewer than `FEWEST_ROWS` stretches).
    """
    prompt = non_negative_fit(prefill_rows(prefill, prompts), what="prefill times")
    gap = non_negative_fit(decode_rows(decode), what="gaps between tokens")
    pull = non_negative_fit(transfer_rows(decode), what="KV transfers")
    kv_bytes = _ratio(
        decode, lambda r: _sum(r.kv_transfer_bytes), lambda r: r.transferred_prompt_tokens
    )
    rate = _ratio(decode, lambda r: _sum(r.kv_transfer_bytes), lambda r: _sum(r.kv_transfer_time))
    capacity = decode[-1].kv_capacity_tokens
    if kv_bytes is None or rate is None or capacity is None:
        raise _too_little("KV transfers and KV capacity", 0)
    latency_s, s_per_byte = pull.costs

    def measured(value: float, how: str) -> Figure:
        return Figure(value=value, tag="measured", source=f"{source}: {how}")

    def told(fit: Fit, what: str) -> str:
        return f"{what}, least squares over {fit.rows} stretches, {fit.error_ratio:.0%} mean error"

    of_prefill = told(prompt, "prefill time by prompt length, prompts alone in their step")
    of_decode = told(gap, "gaps between tokens by batch and KV tokens")
    of_pull = told(pull, "transfer time by bytes")
    figures = {
        "prefill_base_s": measured(prompt.costs[0], of_prefill),
        "prefill_s_per_token": measured(max(prompt.costs[1], SMALLEST_S), of_prefill),
        "prefill_s_per_token_squared": measured(prompt.costs[2], of_prefill),
        "decode_base_s": measured(gap.costs[0], of_decode),
        "decode_s_per_sequence": measured(gap.costs[1], of_decode),
        "decode_s_per_kv_token": measured(gap.costs[2], of_decode),
        "kv_bytes_per_token": measured(kv_bytes, "bytes pulled by prompt tokens pulled"),
        "kv_capacity_tokens": measured(capacity, "vllm:cache_config_info"),
        "kv_link_bytes_per_s": measured(1.0 / s_per_byte if s_per_byte > 0.0 else rate, of_pull),
        "kv_link_latency_s": measured(latency_s, of_pull),
    }
    starts = {
        "start_cold_s": _starts(start_s, source=source, cold=True),
        "start_warm_s": _starts(start_s, source=source, cold=False),
    }
    every = dict(figures)
    for key, stages in starts.items():
        every |= {f"{key}.{stage}": figure for stage, figure in stages.items()}
    values = {key: figure.value for key, figure in figures.items()}
    return EngineProfile(
        name=name,
        model=model,
        accelerator=accelerator,
        prefill_base_s=values["prefill_base_s"],
        prefill_s_per_token=values["prefill_s_per_token"],
        prefill_s_per_token_squared=values["prefill_s_per_token_squared"],
        decode_base_s=values["decode_base_s"],
        decode_s_per_sequence=values["decode_s_per_sequence"],
        decode_s_per_kv_token=values["decode_s_per_kv_token"],
        kv_bytes_per_token=values["kv_bytes_per_token"],
        kv_capacity_tokens=int(values["kv_capacity_tokens"]),
        kv_link_bytes_per_s=values["kv_link_bytes_per_s"],
        kv_link_latency_s=values["kv_link_latency_s"],
        start_cold_s={stage: figure.value for stage, figure in starts["start_cold_s"].items()},
        start_warm_s={stage: figure.value for stage, figure in starts["start_warm_s"].items()},
        figures=every,
    )


SMALLEST_S = 1e-9
"""A prompt token that costs nothing measurable: a profile wants more than 0 there."""

USUAL_START_S = 30.0
COLD_BY_WARM = 1.8


def _starts(start_s: float | None, *, source: str, cold: bool) -> Mapping[StartStage, Figure]:
    """A process on a machine that is there: all of the start is the process's own."""
    warm = (
        Figure(value=USUAL_START_S, tag="estimated", source="order of magnitude: Python's imports")
        if start_s is None
        else Figure(value=start_s, tag="measured", source=f"{source}: until a pair answered")
    )
    own = (
        Figure(
            value=warm.value * COLD_BY_WARM,
            tag="estimated",
            source="48 s to 27 s in one try: imports that nobody has read lately",
        )
        if cold
        else warm
    )
    none = Figure(value=0.0, tag="estimated", source="a process on a machine that is there")
    return {stage: own if stage is StartStage.PROCESS else none for stage in StartStage}


def _sum(histogram: HistogramReading | None) -> float | None:
    return histogram.sum if histogram is not None else None


def _ratio(
    readings: Sequence[ReplicaReading],
    above: Callable[[ReplicaReading], float | None],
    below: Callable[[ReplicaReading], float | None],
) -> float | None:
    """How much one sum grew for each unit of another, over the whole run."""
    first, last = readings[0], readings[-1]
    numbers = [above(last), above(first), below(last), below(first)]
    if any(number is None or not isfinite(number) for number in numbers):
        return None
    top_last, top_first, base_last, base_first = (float(n or 0.0) for n in numbers)
    grown = base_last - base_first
    return (top_last - top_first) / grown if grown > 0.0 and top_last > top_first else None


def _too_little(what: str, rows: int) -> Misconfigured:
    return Misconfigured(
        "the recording is too short to fit a profile",
        where=what,
        found=f"{rows} stretches with something in them",
        expected=f"at least {FEWEST_ROWS}",
    )
