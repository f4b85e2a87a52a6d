"""One tick as it was written down: the only source of every explanation and view.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.types import Decision, Plan
from serving.types import Observation, PhaseSample, PoolState


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTick:
    """One row: the observations since the tick before, the plan made, and the state's hash.

    Of a tick that is only remembered, not read from a ledger, the hash is empty.
    """

    epoch: int
    at_s: float
    observations: tuple[Observation, ...]
    plan: Plan
    state_hash: str = ""

    @property
    def newest(self) -> Observation:
        """The last thing seen before the plan was made: what it was made from."""
        return self.observations[-1]

    def decision(self, pool: str) -> Decision | None:
        """The decision of a pool by its name, or `None` if the tier has no such pool."""
        return next((d for d in self.plan.decisions if d.pool.name == pool), None)

    def state(self, pool: str) -> PoolState | None:
        """A pool's replica counts as seen, or `None`."""
        return next((p for p in self.newest.pools if p.pool.name == pool), None)

    def sample(self, pool: str) -> PhaseSample | None:
        """A pool's newest sample, or `None`."""
        return next((s for s in self.newest.samples if s.pool.name == pool), None)
