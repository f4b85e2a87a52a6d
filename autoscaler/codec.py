"""Values to bytes and back, exactly: what the ledger stores. Pure: no clock, no network, no log.

JSON by pydantic over the dataclasses themselves; a float comes back as the same float. Infinities
and NaN have no place in these values, and reading one back is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pydantic import TypeAdapter

from autoscaler.plan_codec import dump_plan as dump_plan
from autoscaler.plan_codec import load_plan as load_plan
from autoscaler.plan_codec import load_value
from autoscaler.state import LearnedState
from autoscaler.types import TierSettings
from serving.types import Observation

_OBSERVATIONS: TypeAdapter[tuple[Observation, ...]] = TypeAdapter(tuple[Observation, ...])
_STATE: TypeAdapter[LearnedState] = TypeAdapter(LearnedState)
_SETTINGS: TypeAdapter[TierSettings] = TypeAdapter(TierSettings)


def dump_observations(observations: Sequence[Observation]) -> bytes:
    """The observations of one tick as JSON."""
    return _OBSERVATIONS.dump_json(tuple(observations))


def load_observations(data: bytes) -> tuple[Observation, ...]:
    """The observations of one tick; Misconfigured if the bytes are not what was written."""
    return load_value(_OBSERVATIONS, data, "observations")


def dump_state(state: LearnedState) -> bytes:
    """A learned state as JSON."""
    return _STATE.dump_json(state)


def load_state(data: bytes) -> LearnedState:
    """A learned state; Misconfigured if the bytes are not what was written."""
    return load_value(_STATE, data, "state")


def dump_settings(settings: TierSettings) -> bytes:
    """The settings of a tier as JSON."""
    return _SETTINGS.dump_json(settings)


def load_settings(data: bytes) -> TierSettings:
    """The settings of a tier; Misconfigured if the bytes are not what was written."""
    return load_value(_SETTINGS, data, "settings")


def state_hash(state: LearnedState) -> str:
    """A short name of a state: equal states have equal names."""
    return hashlib.sha256(dump_state(state)).hexdigest()[:16]
