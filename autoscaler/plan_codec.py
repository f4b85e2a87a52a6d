"""A plan to bytes and back, exactly, and the published form that others answer from.

Apart from the other codecs so that whoever only answers loads no arithmetic. Pure: no clock, no
network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from autoscaler.types import Plan
from serving.errors import Misconfigured

PlanMode = Literal["advise", "act"]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPlan:
    """The newest plan of a tier as others read it.

    `written` grows by one at every write and so is the writer's heartbeat: a plan whose `written`
    stands still is old, whatever its times say, for its times may be virtual or of another clock.
    In mode `advise` nobody may act on it.
    """

    mode: PlanMode
    plan: Plan
    written: int


_PLAN: TypeAdapter[Plan] = TypeAdapter(Plan)
_PUBLISHED: TypeAdapter[PublishedPlan] = TypeAdapter(PublishedPlan)


def dump_plan(plan: Plan) -> bytes:
    """A plan as JSON."""
    return _PLAN.dump_json(plan)


def load_plan(data: bytes) -> Plan:
    """A plan; Misconfigured if the bytes are not what was written."""
    return load_value(_PLAN, data, "plan")


def dump_published(published: PublishedPlan) -> bytes:
    """A published plan as JSON."""
    return _PUBLISHED.dump_json(published)


def load_published(data: bytes) -> PublishedPlan:
    """A published plan; Misconfigured if the bytes are not what was written."""
    return load_value(_PUBLISHED, data, "published plan")


def load_value(adapter: TypeAdapter[_T], data: bytes, what: str) -> _T:
    """What `adapter` reads from the bytes; Misconfigured about the first thing it cannot read."""
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
