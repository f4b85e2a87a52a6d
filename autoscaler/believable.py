"""What cannot be is unknown: the last guard before anything is learned.

Pure: no clock, no network, no log. Sources are expected to give `None` for what they do not know;
a number that no rate, mean or gauge can have is treated the same here, whatever let it through.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from serving.types import UNKNOWN, Measurement, Observation, PhaseSample, RouterSample

LARGEST = 1e15  # of any unit: a million replicas of a million tokens/s are a thousand times less
SMALLEST = 1e-9  # above zero: one event in thirty years, a nanosecond

_Sample = TypeVar("_Sample", PhaseSample, RouterSample)
_PHASE_FIELDS = tuple(f.name for f in fields(PhaseSample) if f.default is UNKNOWN)
_ROUTER_FIELDS = tuple(f.name for f in fields(RouterSample) if f.default is UNKNOWN)


def is_believable(value: float) -> bool:
    """Whether a rate, mean or gauge can have this value; NaN is in no range."""
    return value == 0.0 or SMALLEST <= value <= LARGEST


def _cleaned(sample: _Sample, names: tuple[str, ...]) -> _Sample:
    wrong: dict[str, Any] = {}
    for name in names:
        value = getattr(sample, name).value
        if value is not None and not is_believable(value):
            wrong[name] = Measurement(None, None, getattr(sample, name).coverage_ratio)
    if not wrong:
        return sample
    words = f"no such values: {', '.join(sorted(wrong))}"
    return replace(sample, **wrong, problems=(*sample.problems, words))


def believable(observation: Observation) -> Observation:
    """The observation with every impossible number unknown: NaN, infinite, negative, absurd."""
    router = observation.router
    return replace(
        observation,
        samples=tuple(_cleaned(sample, _PHASE_FIELDS) for sample in observation.samples),
        router=None if router is None else _cleaned(router, _ROUTER_FIELDS),
    )
