"""Failures on demand: what may be done to a simulated tier, as plain values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from serving.errors import Misconfigured

PageFault = None | str | tuple[str, float]
"""What is wrong with a replica's page: `None`, "frozen", "missing" or ("late", seconds)."""


class FaultKind(StrEnum):
    """`CLEAR` ends every fault but a kill, which has no end."""

    KILL = "kill"
    SLOW_LINK = "slow_link"
    FROZEN_PAGE = "frozen_page"
    MISSING_PAGE = "missing_page"
    LATE_PAGE = "late_page"
    CLEAR = "clear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One failure of some replicas of one pool.

    `replicas` is "all", "every_second" (the 2nd, 4th, ... in order of creation) or a replica's
    name. `factor` is what a slow link keeps of its bandwidth (0.1: a tenth); `seconds` is how old
    a late page is. A kill loses the replica's KV and its requests; the pool starts another.
    """

    kind: FaultKind
    pool: str
    replicas: str = "all"
    factor: float = 0.1
    seconds: float = 30.0

    def __post_init__(self) -> None:
        if not self.factor > 0.0:
            raise Misconfigured(
                "a link cannot be stopped",
                where="fault.factor",
                found=repr(self.factor),
                expected="more than 0",
            )
        if not self.seconds >= 0.0:
            raise Misconfigured(
                "a page cannot come from the future",
                where="fault.seconds",
                found=repr(self.seconds),
                expected="0 or more",
            )


def page_fault_of(fault: Fault) -> PageFault:
    """What a page fault sets on a replica; `None` for a fault that is not about pages."""
    match fault.kind:
        case FaultKind.FROZEN_PAGE:
            return "frozen"
        case FaultKind.MISSING_PAGE:
            return "missing"
        case FaultKind.LATE_PAGE:
            return ("late", fault.seconds)
        case _:
            return None
