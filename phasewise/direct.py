"""A simulated tier without HTTP: the clock, source and actuator of a backtest.

The readings are those that the pages would give, and the observer is the one that reads pages, so
a backtest decides exactly what a run over HTTP decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from autoscaler.types import TierSettings
from collector.observe import Member, ObserverSettings, ObserverState, step
from phasewise.pool_states import pool_states
from serving.simulation.faults import Fault
from serving.simulation.readings import RouterSource, reading_of, router_reading_of
from serving.simulation.seen import SeenTelemetry
from serving.simulation.tier import SimulatedTier
from serving.types import Observation, Phase, PoolId


class DirectTier:
    """Clock, Source and Actuator over a tier in this process; virtual time ends at `until_s`.

    `faults` are (time, fault), each injected at the first scrape at or after its time.
    """

    def __init__(
        self,
        tier: SimulatedTier,
        settings: TierSettings,
        *,
        until_s: float,
        scrape_interval_s: float = 5.0,
        router: RouterSource | None = "epp",
        observer: ObserverSettings | None = None,
        faults: Sequence[tuple[float, Fault]] = (),
    ) -> None:
        self._tier = tier
        self._settings = settings
        self._until_s = until_s
        self._interval_s = scrape_interval_s
        self._router = router
        self._aggregated = all(pool.phase is Phase.BOTH for pool in tier.plan.pools)
        self._pools = tuple(p.pool.name for p in settings.pools)
        self._observer = observer or ObserverSettings()
        self._state = ObserverState()
        # copies of the numbers are kept only where a page may become late or frozen: they cost time
        self._seen = SeenTelemetry() if faults else None
        self._faults = sorted(faults, key=lambda timed: timed[0])

    def _note(self) -> None:
        if self._seen is not None:
            self._seen.note(self._tier.replicas(), self._tier.now_s)

    async def next_scrape(self) -> float | None:
        """Play one scrape interval; `None` once the end is reached."""
        if self._tier.now_s >= self._until_s - 1e-9:
            return None
        self._note()
        self._tier.advance(self._interval_s)
        self._note()
        while self._faults and self._faults[0][0] <= self._tier.now_s:
            self._tier.inject(self._faults.pop(0)[1])
            self._note()
        return self._tier.now_s

    async def observe(self, now_s: float) -> Observation:
        """The observation that scraping every page would give."""
        replicas = self._tier.replicas()
        members = {
            r.name: Member(
                pool=r.pool,
                state=r.state,
                created_s=r.created_s,
                start_kind=r.start_kind,
                start_stages=r.start_stages,
                next_start=self._tier.next_start(r.pool),
            )
            for r in replicas
        }
        readings = {
            r.name: reading
            for r in replicas
            if (reading := reading_of(r, now_s, seen=self._seen)) is not None
        }
        desired = {name: self._tier.pool_counts(name).desired for name in self._pools}
        router = (
            None
            if self._router is None
            else router_reading_of(
                self._tier.router, now_s, source=self._router, aggregated=self._aggregated
            )
        )
        self._state, observation = step(
            self._state,
            now_s=now_s,
            readings=readings,
            router=router,
            pools=pool_states(self._settings.pools, members, desired, now_s=now_s),
            members=members,
            slo=self._settings.slo,
            settings=self._observer,
        )
        return observation

    async def scale(self, pool: PoolId, replicas: int, *, epoch: int) -> None:
        """Scale at once, as the scale endpoint does."""
        self._note()
        self._tier.scale(pool.name, replicas)
        self._note()
