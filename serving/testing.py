"""Makers of the shared values for tests: everything that a test does not name is plain and known.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from typing import Any

from serving.types import Measurement, Observation, Phase, PhaseSample, PoolId, PoolState

PREFILL = PoolId(tier="demo", name="prefill", phase=Phase.PREFILL, variant="l40s")
DECODE = PoolId(tier="demo", name="decode", phase=Phase.DECODE, variant="l40s")


def make_sample(
    pool: PoolId, *, at_s: float, window_s: float = 5.0, replicas: int = 4, **values: float | None
) -> PhaseSample:
    """A fully covered sample of one window that ends at `at_s`; `values` are plain numbers."""
    known: dict[str, Any] = {
        name: Measurement(value, 0.0, 1.0 if value is not None else 0.0)
        for name, value in values.items()
    }
    return PhaseSample(
        pool=pool,
        window_start_s=at_s - window_s,
        window_s=window_s,
        replicas_expected=replicas,
        replicas_reporting=replicas,
        **known,
    )


def make_pool_state(
    pool: PoolId,
    *,
    at_s: float,
    desired: int | None,
    ready: int | None = None,
    starting: int = 0,
    starting_since_s: tuple[float, ...] = (),
) -> PoolState:
    """A pool whose ready replicas are those desired less those starting, unless told."""
    return PoolState(
        pool=pool,
        observed_at_s=at_s,
        desired_replicas=desired,
        ready_replicas=ready if ready is not None or desired is None else desired - starting,
        starting_replicas=None if desired is None else starting,
        draining_replicas=0,
        starting_since_s=starting_since_s,
    )


def make_observation(
    *samples: PhaseSample, at_s: float, pools: tuple[PoolState, ...] = ()
) -> Observation:
    """An observation without a front end."""
    return Observation(at_s=at_s, samples=samples, pools=pools)
