"""What a local replica is, what a pool should have, and how long failed starts make it wait.

What follows from that is in `reconcile`. A dead replica is simply no longer there.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from serving.types import Phase, StartStage

FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 60.0
MOST_FAILED_STARTS = 5


class LocalState(StrEnum):
    """Where a replica is. `GONE` ended as asked, `LOST` did not; both need nothing any more."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    GONE = "gone"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a pool should have. Replicas flip between pools of one variant where both may flip."""

    pool: str
    phase: Phase
    variant: str
    replicas: int
    may_flip: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A replica as the plan sees it.

    `requests` (running and waiting) and `kv_ratio` are as last seen; `None` counts as the most.
    `flip_to` is the pool that a draining replica will serve next; `drained`: nothing needs it now;
    `ending`: its process has been told to end, which cannot be taken back.
    """

    name: str
    pool: str
    state: LocalState
    asked_s: float
    stage: StartStage | None = None
    ready_s: float | None = None
    requests: float | None = None
    kv_ratio: float | None = None
    flip_to: str | None = None
    drained: bool = False
    ending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedStarts:
    """How many starts of a pool failed in a row, and when the last one did."""

    count: int = 0
    last_s: float = 0.0

    def waits_until_s(self) -> float:
        """The next start may come then: 2, 4, 8, 16 s later; after the fifth, never by itself."""
        if self.count == 0:
            return 0.0
        if self.count >= MOST_FAILED_STARTS:
            return float("inf")
        return self.last_s + min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** (self.count - 1))

    def and_one_more(self, at_s: float) -> FailedStarts:
        """After another failed start."""
        return FailedStarts(count=self.count + 1, last_s=at_s)


NO_FAILED_STARTS = FailedStarts()
