"""Where a rate will be when a new replica could serve. Pure: no clock, no network, no log.

A few simple forecasters compete on their own recent errors at the lead that matters; last value
is the one to beat. The upper bound is a quantile of the chosen one's own errors (conformal), with
a small prior spread, so that it is usable in the first minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from autoscaler.types import Forecast

HISTORY_S = 3600.0
_ERRORS_KEPT = 180  # scrapes: 15 minutes at 5 s
_PRIOR_ERRORS = 20
_PRIOR_SPREAD = 0.05
_MUST_BEAT_RATIO = 0.95  # a forecaster replaces last value only if its error is 5 % smaller
_TREND_WINDOW_S = 300.0
_TREND_T = 3.0
_TREND_CAP_RATIO = 0.4
_WARM_UP_S = 120.0  # the first levels are those of a start, and would be judged as errors
_LARGEST_MARGIN = 0.15  # a jump is not a spread: what one jump missed is not added for ever after
_LEVEL_WINDOW_S = 60.0  # levels are 60 s means, so neighbours within it are not independent


@dataclass(frozen=True, slots=True)
class Point:
    """A level of a rate at a time: the mean over the level window that ended then."""

    at_s: float
    per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecaster:
    """A name and a pure function of the levels so far and a lead; `None` if it has no opinion."""

    name: str
    predict: Callable[[Sequence[Point], float], float | None]


def last_value(points: Sequence[Point], lead_s: float) -> float | None:
    """The level stays. The baseline that every other forecaster must beat."""
    return points[-1].per_s if points else None


def slow_average(points: Sequence[Point], lead_s: float) -> float | None:
    """The mean of the last three minutes: right where the level only jitters."""
    if not points:
        return None
    seen = [p.per_s for p in points if p.at_s > points[-1].at_s - 180.0]
    return sum(seen) / len(seen)


def damped_trend(points: Sequence[Point], lead_s: float) -> float | None:
    """The last level plus the slope of the last five minutes, where that slope is significant.

    Least squares; the slope counts only if it is three standard errors from zero with the errors'
    dependence allowed for (levels are overlapping means) and if the later half agrees in sign. The
    move over the lead is capped at 40 % of the level.
    """
    if not points:
        return None
    level = points[-1].per_s
    seen = [p for p in points if p.at_s > points[-1].at_s - _TREND_WINDOW_S]
    if len(seen) < 12 or seen[-1].at_s - seen[0].at_s < 0.6 * _TREND_WINDOW_S or level <= 0.0:
        return level
    t = np.array([p.at_s for p in seen]) - seen[-1].at_s
    y = np.array([p.per_s for p in seen])
    slope, offset = np.polyfit(t, y, 1)
    residual = y - (slope * t + offset)
    spacing_s = (seen[-1].at_s - seen[0].at_s) / (len(seen) - 1)
    independent = max(3.0, len(seen) * min(1.0, spacing_s / _LEVEL_WINDOW_S))
    variance = float(residual @ residual) / max(1.0, independent - 2.0)
    spread = float(((t - t.mean()) ** 2).sum()) * independent / len(seen)
    error = math.sqrt(variance / spread) if spread > 0.0 else math.inf
    half = len(seen) // 2
    late_slope = float(np.polyfit(t[half:], y[half:], 1)[0])
    if abs(slope) < _TREND_T * error or late_slope * slope <= 0.0:
        return level
    cap = _TREND_CAP_RATIO * level
    return level + max(-cap, min(cap, float(slope) * lead_s))


FORECASTERS: tuple[Forecaster, ...] = (
    Forecaster(name="last_value", predict=last_value),
    Forecaster(name="slow_average", predict=slow_average),
    Forecaster(name="damped_trend", predict=damped_trend),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateHistory:
    """One rate's levels, and for each forecaster its last log errors at the lead."""

    points: tuple[Point, ...] = ()
    errors: tuple[tuple[float, ...], ...] = tuple(() for _ in FORECASTERS)


def learn_level(history: RateHistory, *, at_s: float, per_s: float | None) -> RateHistory:
    """The history with one more level; an unknown one leaves a gap."""
    if per_s is None or not math.isfinite(per_s) or per_s < 0.0:
        return history
    kept = history.points
    if kept and kept[0].at_s < at_s - HISTORY_S:
        kept = kept[1:]
    return replace(history, points=(*kept, Point(at_s, per_s)))


def _until(points: Sequence[Point], at_s: float) -> Sequence[Point]:
    """The points up to a time; none if the newest of them is older than a minute before it."""
    low, high = 0, len(points)
    while low < high:
        middle = (low + high) // 2
        if points[middle].at_s <= at_s + 1e-6:
            low = middle + 1
        else:
            high = middle
    seen = points[:low]
    return seen if seen and seen[-1].at_s >= at_s - 60.0 else ()


def learn_errors(history: RateHistory, *, lead_s: float) -> RateHistory:
    """The history with one more error per forecaster: what it said one lead ago against now."""
    if not history.points:
        return history
    now = history.points[-1]
    past = _until(history.points, now.at_s - lead_s)
    warm_s = history.points[0].at_s + _WARM_UP_S
    if not past or now.per_s <= 0.0 or past[-1].at_s < warm_s:
        return history
    errors: list[tuple[float, ...]] = []
    for forecaster, known in zip(FORECASTERS, history.errors, strict=True):
        said = forecaster.predict(past, lead_s)
        if said is None or said <= 0.0:
            errors.append(known)
        else:
            errors.append((*known, math.log(now.per_s / said))[-_ERRORS_KEPT:])
    return replace(history, errors=tuple(errors))


def choose(errors: Sequence[Sequence[float]]) -> int:
    """Index of the forecaster to use: the smallest mean absolute error, last value on near-ties."""
    best, best_loss = 0, math.inf
    for index, seen in enumerate(errors):
        if len(seen) < 8:
            if index == 0:
                return 0
            continue
        loss = sum(abs(e) for e in seen) / len(seen)
        if index == 0:
            best_loss = loss * _MUST_BEAT_RATIO
        elif loss < best_loss:
            best, best_loss = index, loss
    return best


def upper_margin(errors: Sequence[float], *, ratio: float) -> float:
    """The log margin that `ratio` of the errors stay under; from zero to 0.15.

    Twenty prior errors, spread as a normal of 5 %, stand in until there are enough real ones.
    """
    normal = NormalDist(0.0, _PRIOR_SPREAD)
    prior = [normal.inv_cdf((k + 0.5) / _PRIOR_ERRORS) for k in range(_PRIOR_ERRORS)]
    known = sorted((*errors, *prior))
    index = min(len(known) - 1, max(0, math.ceil(ratio * (len(known) + 1)) - 1))
    return min(_LARGEST_MARGIN, max(0.0, known[index]))


def forecast(
    history: RateHistory, *, now_s: float, lead_s: float, upper_ratio: float, stale_s: float
) -> Forecast | None:
    """The rate at the lead, or `None` when the newest level is older than `stale_s`.

    The window from now to the lead counts, so expected and upper are never under the level now
    while the forecast falls.
    """
    if not history.points or history.points[-1].at_s < now_s - stale_s:
        return None
    index = choose(history.errors)
    said = FORECASTERS[index].predict(history.points, lead_s)
    if said is None:
        return None
    level = history.points[-1].per_s
    margin = upper_margin(history.errors[index], ratio=upper_ratio)
    return Forecast(
        made_at_s=now_s,
        lead_s=lead_s,
        level_per_s=level,
        expected_per_s=max(level, said),
        upper_per_s=max(level, said) * math.exp(margin),
        upper_ratio=upper_ratio,
        forecaster=FORECASTERS[index].name,
        history_s=now_s - history.points[0].at_s,
        errors_known=len(history.errors[index]),
    )
