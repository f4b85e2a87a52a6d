"""Linear fits that learn online, forget slowly and start from a prior.

Pure: no clock, no network, no log.

Weighted least squares kept as sufficient statistics (normal equations), with exponential
forgetting, and a Gaussian prior on the coefficients added when solving (ridge regression towards
the prior). Coefficients of service times cannot be negative: one that would be is held at zero
and the rest are solved again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The state of one fit: discounted sums of x xᵀ, x y and y², as plain tuples.

    `weight` is the discounted number of windows behind it; `total_weight` is never discounted.
    """

    gram: tuple[tuple[float, ...], ...]
    moment: tuple[float, ...]
    square: float = 0.0
    weight: float = 0.0
    total_weight: float = 0.0
    last_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Means of x xᵀ, x y and y² over `count` observations: what a fit needs to know of them."""

    count: float
    gram: tuple[tuple[float, ...], ...]
    moment: tuple[float, ...]
    square: float


def empty_fit(dimensions: int) -> Fit:
    """A fit that has seen nothing."""
    zeros = tuple(0.0 for _ in range(dimensions))
    return Fit(gram=tuple(zeros for _ in range(dimensions)), moment=zeros)


def learn_point(
    fit: Fit, x: tuple[float, ...], y: float, *, weight: float, at_s: float, forget_s: float
) -> Fit:
    """The fit after one more observation; older ones fade by 1/e in `forget_s` seconds."""
    if not (math.isfinite(y) and all(math.isfinite(v) for v in x) and weight > 0.0):
        return fit
    more = Moments(
        count=1.0,
        gram=tuple(tuple(weight * a * b for b in x) for a in x),
        moment=tuple(weight * v * y for v in x),
        square=weight * y * y,
    )
    return _with(fit, more, weight=weight, at_s=at_s, forget_s=forget_s)


def learn_moments(
    fit: Fit, moments: Moments, *, weight: float, at_s: float, forget_s: float
) -> Fit:
    """The fit after observations of which only the means are known, together of one weight."""
    numbers = (*moments.moment, *(v for row in moments.gram for v in row), moments.square)
    if not (all(math.isfinite(v) for v in numbers) and weight > 0.0):
        return fit
    more = Moments(
        count=moments.count,
        gram=tuple(tuple(weight * v for v in row) for row in moments.gram),
        moment=tuple(weight * v for v in moments.moment),
        square=weight * moments.square,
    )
    return _with(fit, more, weight=weight, at_s=at_s, forget_s=forget_s)


def _with(fit: Fit, more: Moments, *, weight: float, at_s: float, forget_s: float) -> Fit:
    """The fit, faded to a moment, with sums that have their weight in them already."""
    fade = 1.0 if fit.last_s is None else math.exp(-max(0.0, at_s - fit.last_s) / forget_s)
    return replace(
        fit,
        gram=tuple(
            tuple(fade * old + new for old, new in zip(olds, news, strict=True))
            for olds, news in zip(fit.gram, more.gram, strict=True)
        ),
        moment=tuple(fade * old + new for old, new in zip(fit.moment, more.moment, strict=True)),
        square=fade * fit.square + more.square,
        weight=fade * fit.weight + weight,
        total_weight=fit.total_weight + weight,
        last_s=at_s,
    )


def solve(
    fit: Fit, *, prior: tuple[float, ...], spread_ratio: float, noise: float
) -> tuple[float, ...]:
    """Coefficients, none negative. `noise` is the standard deviation of one y of weight 1.

    The prior pulls with the strength of one observation whose error is `spread_ratio` times the
    prior's own value, so that a few minutes of load overrule it.
    """
    prior_mean = np.asarray(prior, dtype=float)
    spread = np.maximum(np.abs(prior_mean) * spread_ratio, 1e-12)
    precision = np.diag(noise**2 / spread**2)
    gram = np.asarray(fit.gram, dtype=float) + precision
    moment = np.asarray(fit.moment, dtype=float) + precision @ prior_mean
    active = list(range(len(prior)))
    answer = np.zeros(len(prior))
    while active:
        part = np.ix_(active, active)
        try:
            solved = np.linalg.solve(gram[part], moment[active])
        except np.linalg.LinAlgError:  # windows that tell nothing apart: the prior stands
            return prior
        if not np.all(np.isfinite(solved)):
            return prior
        negative = [k for k, value in zip(active, solved, strict=True) if value < 0.0]
        if not negative:
            answer[active] = solved
            break
        active = [k for k in active if k not in negative]
    return tuple(float(v) for v in answer)
