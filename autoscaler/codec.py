"""Values to bytes and back, exactly: what the ledger stores. Pure: no clock, no network, no log.

JSON by pydantic over the dataclasses themselves; a float comes back as the same float. Infinities
and NaN have no place in these values, and reading one back is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from autoscaler.state import LearnedState
from autoscaler.types import Plan, TierSettings
from serving.errors import Misconfigured
from serving.types import Observation

_T = TypeVar("_T")
_OBSERVATIONS: TypeAdapter[tuple[Observation, ...]] = TypeAdapter(tuple[Observation, ...])
_PLAN: TypeAdapter[Plan] = TypeAdapter(Plan)
_STATE: TypeAdapter[LearnedState] = TypeAdapter(LearnedState)
_SETTINGS: TypeAdapter[TierSettings] = TypeAdapter(TierSettings)


def dump_observations(observations: Sequence[Observation]) -> bytes:
    """The observations of one tick as JSON."""
    return _OBSERVATIONS.dump_json(tuple(observations))


def load_observations(data: bytes) -> tuple[Observation, ...]:
    """The observations of one tick; Misconfigured if the bytes are not what was written."""
    return _load(_OBSERVATIONS, data, "observations")


def dump_plan(plan: Plan) -> bytes:
    """A plan as JSON."""
    return _PLAN.dump_json(plan)


def load_plan(data: bytes) -> Plan:
    """A plan; Misconfigured if the bytes are not what was written."""
    return _load(_PLAN, data, "plan")


def dump_state(state: LearnedState) -> bytes:
    """A learned state as JSON."""
    return _STATE.dump_json(state)


def load_state(data: bytes) -> LearnedState:
    """A learned state; Misconfigured if the bytes are not what was written."""
    return _load(_STATE, data, "state")


def dump_settings(settings: TierSettings) -> bytes:
    """The settings of a tier as JSON."""
    return _SETTINGS.dump_json(settings)


def load_settings(data: bytes) -> TierSettings:
    """The settings of a tier; Misconfigured if the bytes are not what was written."""
    return _load(_SETTINGS, data, "settings")


def state_hash(state: LearnedState) -> str:
    """A short name of a state: equal states have equal names."""
    return hashlib.sha256(dump_state(state)).hexdigest()[:16]


def _load(adapter: TypeAdapter[_T], data: bytes, what: str) -> _T:
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise Misconfigured(
            f"the recorded {what} cannot be read",
            where=f"ledger, {where}",
            found=str(first["input"])[:80],
            expected=str(first["msg"]),
        ) from error
