"""The recorded series `phase:*` from our own observations: the in-process supplier.

The same names, labels and meanings as the recording rules over native series. Where the two see
differently, ours says more: what too few replicas reported is absent, what some did not report is
scaled up, and a pool that is known to be empty runs 0 requests.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.recorded import RECORDED, WINDOW_S, Over, RecordedSpec, WithinSlo
from serving.recorded_within import joined
from serving.types import Measurement, Observation, PhaseSample, RouterSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One value of one recorded series; `labels` are the values of the spec's label names."""

    spec: RecordedSpec
    labels: tuple[str, ...]
    value: float


def last_minute(observations: Sequence[Observation]) -> tuple[Observation, ...]:
    """The observations that end within one minute of the newest; oldest first, as given."""
    if not observations:
        return ()
    since_s = observations[-1].at_s - WINDOW_S
    return tuple(one for one in observations if one.at_s > since_s + 1e-6)


def aggregate(observations: Sequence[Observation], *, tier: str) -> tuple[Recorded, ...]:
    """Every recorded series of a tier that is known at the newest of these observations."""
    minute = last_minute(observations)
    if not minute:
        return ()
    found: list[Recorded] = []
    pools = [sample.pool for sample in minute[-1].samples]
    by_pool = {pool: [s for one in minute for s in one.samples if s.pool == pool] for pool in pools}
    routers = [one.router for one in minute if one.router is not None]
    for spec in RECORDED:
        if spec.of_user:
            newest = minute[-1].router
            value = None if newest is None else _of_user(spec, routers)
            if value is None and spec.within is WithinSlo.TPOT:
                decoding = [s for pool in pools for s in by_pool[pool]]
                value = _value(spec, decoding) if decoding else None
            if value is not None:
                found.append(Recorded(spec=spec, labels=(tier,), value=value))
            continue
        for pool, samples in by_pool.items():
            value = _value(spec, samples)
            if value is not None:
                labels = (tier, pool.name, pool.phase.value)
                found.append(Recorded(spec=spec, labels=labels, value=value))
    return tuple(found)


def _of_user(spec: RecordedSpec, routers: Sequence[RouterSample]) -> float | None:
    """A share whose SLO is no bucket bound is joined from its limits, and then judged.

    For the token gap decode is asked instead, as the recording rule does.
    """
    off_bound, share = joined(spec.measurement, routers)
    if not off_bound:
        return _value(spec, routers)
    return share if spec.within is WithinSlo.TTFT else None


def _value(spec: RecordedSpec, samples: Sequence[PhaseSample | RouterSample]) -> float | None:
    if spec.over is Over.NEWEST:
        return _known(spec, samples[-1])
    total = weight = 0.0
    begun = False
    for sample in reversed(samples):
        value = _known(spec, sample)
        if value is None and begun and _before_first_event(spec, sample):
            value = 0.0
        if value is None:
            continue
        begun = True
        if spec.over is Over.RATE:
            part = sample.window_s
        else:
            part = dict(sample.counted).get(spec.measurement, 0.0)
        total += value * part
        weight += part
    return total / weight if weight > 0.0 else None


def _before_first_event(spec: RecordedSpec, sample: PhaseSample | RouterSample) -> bool:
    """A picker's counter that a later page has and this good one lacks had counted nothing."""
    return (
        spec.over is Over.RATE
        and isinstance(sample, RouterSample)
        and sample.requests_per_s.value is not None
    )


def _known(spec: RecordedSpec, sample: PhaseSample | RouterSample) -> float | None:
    found: Measurement | int = getattr(sample, spec.measurement)
    if isinstance(found, Measurement):
        return found.value
    return float(found) if found > 0 else None  # a count of pages: none read is not known
