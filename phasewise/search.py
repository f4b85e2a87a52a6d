"""Which point of a peer to play next, so that few simulations find its fair row. Pure.

A peer's row is the cheapest point whose attainment is at least ours; where none of the points
played reaches it, the best one, marked as not matched. More headroom means fewer misses, roughly
exponentially, so the logarithm of the missed share is followed along the headroom.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from phasewise.scoring import Score

_SMALLEST_MISS = 1e-5
_FIRST_STEP_RATIO = 0.1
_FAR_STEP_RATIO = 0.45  # where more than a tenth misses, more headroom than a little is needed
_FAR_MISS_RATIO = 0.1
_LARGEST_HEADROOM_RATIO = 2.0


def cheapest_match(scores: Sequence[Score], target_ratio: float) -> tuple[Score, bool]:
    """The cheapest row that attains the target, else the one that attains most; and which."""
    matching = [s for s in scores if s.attainment_ratio >= target_ratio]
    if matching:
        return min(matching, key=lambda s: s.total_hours), True
    return max(scores, key=lambda s: (s.attainment_ratio, -s.total_hours)), False


def next_headroom(tried: Sequence[tuple[float, float]], target_ratio: float) -> float | None:
    """The headroom to try next, given (headroom, attainment) so far; `None` if none is better."""
    if not tried:
        return 0.15
    wanted = math.log(max(_SMALLEST_MISS, 1.0 - target_ratio))
    points = sorted((h, math.log(max(_SMALLEST_MISS, 1.0 - a))) for h, a in tried)
    over = [h for h, a in tried if a >= target_ratio]
    under = [h for h, a in tried if a < target_ratio]
    if len(points) == 1:
        step = _FIRST_STEP_RATIO if not over else -_FIRST_STEP_RATIO
        if 1.0 - tried[0][1] > max(_FAR_MISS_RATIO, 1.0 - target_ratio):
            step = _FAR_STEP_RATIO
        return round(points[0][0] + step, 3)
    first, last = points[0], points[-1]
    if over and under:
        low, high = max(under), min(over)
        if low > high:  # noise: a larger headroom attained less
            return round(max(under) + _FIRST_STEP_RATIO, 3)
        first = next(p for p in points if p[0] == low)
        last = next(p for p in points if p[0] == high)
    slope = (last[1] - first[1]) / (last[0] - first[0])
    if slope >= -1e-6:
        guess = max(h for h, _ in points) + 2.0 * _FIRST_STEP_RATIO if not over else min(over) / 2.0
    else:
        guess = first[0] + (wanted - first[1]) / slope
        guess += 0.01 if not over else 0.005  # on the side that attains
    if over and under:
        low, high = max(under), min(over)
        if high - low < 0.01:
            return None
        guess = min(max(guess, low + 0.25 * (high - low)), high - 0.1 * (high - low))
    guess = round(min(_LARGEST_HEADROOM_RATIO, max(-0.5, guess)), 3)
    return None if any(abs(guess - h) < 0.004 for h, _ in tried) else guess


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTried:
    """One fixed size and how it did."""

    prefill: int
    decode: int
    attainment_ratio: float
    ttft_missed_ratio: float
    itl_missed_ratio: float


def next_size(
    tried: Sequence[SizeTried], target_ratio: float, start: tuple[int, int]
) -> tuple[int, int] | None:
    """The fixed size to try next: grow what misses, else give back where least is missed.

    Attainment grows with either pool, so sizes that a tried one already decides are skipped.
    """
    if not tried:
        return start
    allowed = 1.0 - target_ratio

    def decided(size: tuple[int, int]) -> bool:
        prefill, decode = size
        if prefill < 1 or decode < 1:
            return True
        return any(
            (prefill <= t.prefill and decode <= t.decode and t.attainment_ratio < target_ratio)
            or (prefill >= t.prefill and decode >= t.decode and t.attainment_ratio >= target_ratio)
            for t in tried
        )

    over = [t for t in tried if t.attainment_ratio >= target_ratio]
    if over:
        best = min(over, key=lambda t: (t.prefill + t.decode, t.attainment_ratio))
        ordered = [
            (best.ttft_missed_ratio, (best.prefill - 1, best.decode)),
            (best.itl_missed_ratio, (best.prefill, best.decode - 1)),
        ]
        ordered.sort()
        candidates = [
            *(size for _, size in ordered),
            (best.prefill - 2, best.decode + 1),
            (best.prefill + 1, best.decode - 2),
        ]
    else:
        best = max(tried, key=lambda t: t.attainment_ratio)
        more_prefill = best.ttft_missed_ratio > 0.5 * allowed
        more_decode = best.itl_missed_ratio > 0.5 * allowed
        step_prefill = 2 if best.ttft_missed_ratio > 5.0 * allowed else int(more_prefill)
        step_decode = 2 if best.itl_missed_ratio > 5.0 * allowed else int(more_decode)
        candidates = [
            (best.prefill + step_prefill, best.decode + step_decode),
            (best.prefill + 1, best.decode + 1),
            (best.prefill + 2, best.decode + 1),
        ]
    return next((size for size in candidates if not decided(size)), None)


def sweep_headroom(
    play: Callable[[float], Score], *, target_ratio: float, at_most: int
) -> tuple[Score, ...]:
    """Play a peer at up to `at_most` headrooms."""
    scores: list[Score] = []
    tried: list[tuple[float, float]] = []
    while len(scores) < at_most:
        headroom = next_headroom(tried, target_ratio)
        if headroom is None:
            break
        scores.append(play(headroom))
        tried.append((headroom, scores[-1].attainment_ratio))
    return tuple(scores)


def sweep_sizes(
    play: Callable[[int, int], Score],
    *,
    start: tuple[int, int],
    target_ratio: float,
    at_most: int,
) -> tuple[Score, ...]:
    """Play up to `at_most` fixed sizes, looking for the smallest that attains the target."""
    scores: list[Score] = []
    tried: list[SizeTried] = []
    while len(scores) < at_most:
        size = next_size(tried, target_ratio, start)
        if size is None:
            break
        row = play(*size)
        scores.append(row)
        tried.append(
            SizeTried(
                prefill=size[0],
                decode=size[1],
                attainment_ratio=row.attainment_ratio,
                ttft_missed_ratio=row.ttft_missed_ratio,
                itl_missed_ratio=row.itl_missed_ratio,
            )
        )
    return tuple(scores)
