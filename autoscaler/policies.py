"""The policies that ours is measured against. Pure: no clock, no network, no log.

They are given what ours has to learn: each replica's capacity within the SLO, and for the pinned
ratio the trace's own mean ratio. All see the same observations, count starting replicas as supply
and give replicas back only after a down window, so that they lose by their idea and not by a flaw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoscaler.demand import Bin, bin_of, demand_level
from autoscaler.state import Want
from autoscaler.types import Decision, Demand, Plan, PoolSettings, Reason, TierSettings
from serving.types import Observation, Phase, PoolState


@dataclass(frozen=True, slots=True, kw_only=True)
class RateState:
    """The memory of a rate policy: recent bins, and for each pool what it wanted lately."""

    bins: tuple[Bin, ...] = ()
    wants: tuple[tuple[Want, ...], ...] = ()
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Tokens per second of one replica within the SLO: input for prefill, output for decode."""

    prefill_tokens_per_s: float
    decode_tokens_per_s: float


class StaticSize:
    """Every pool at a fixed size, for the whole run."""

    def __init__(self, tier: TierSettings, *, name: str, replicas: dict[Phase, int]) -> None:
        self.name = name
        self.tier = tier
        self.replicas = replicas

    def start(self) -> RateState:
        """There is nothing to remember."""
        return RateState()

    def tick(self, state: RateState, observations: Sequence[Observation]) -> tuple[RateState, Plan]:
        """The same sizes as ever."""
        decisions = tuple(
            Decision(
                pool=pool.pool,
                replicas=self.replicas[pool.phase],
                hold=False,
                reason=Reason.FIXED_SIZE,
                words="a fixed size",
            )
            for pool in self.tier.pools
        )
        state = replace(state, epoch=state.epoch + 1)
        return state, _plan_of(self.tier, self.name, state, observations, decisions, Demand())


class RatePolicy:
    """Pools follow the present rate times a constant headroom.

    `follow` says which rate drives which pool: `own` (each its own: last value per pool), or
    `output` (decode tokens/s drives both, prefill at a pinned ratio to decode).
    """

    def __init__(
        self,
        tier: TierSettings,
        *,
        name: str,
        capacity: Capacity,
        headroom_ratio: float,
        pinned_ratio: float | None = None,
        down_window_s: float = 120.0,
    ) -> None:
        self.name = name
        self.tier = tier
        self.capacity = capacity
        self.headroom_ratio = headroom_ratio
        self.pinned_ratio = pinned_ratio
        self.down_window_s = down_window_s

    def start(self) -> RateState:
        """No bins yet."""
        return RateState(wants=tuple(() for _ in self.tier.pools))

    def wanted(self, demand: Demand, pool: PoolSettings) -> int | None:
        """Replicas for the present demand, or `None` where it is not known."""
        output, prefill = demand.output_tokens_per_s, demand.prefill_tokens_per_s
        factor = 1.0 + self.headroom_ratio
        decode = None if output is None else output * factor / self.capacity.decode_tokens_per_s
        if pool.phase is Phase.DECODE:
            return None if decode is None else math.ceil(decode)
        if self.pinned_ratio is not None:
            own = None if decode is None else decode * self.pinned_ratio
        elif prefill is None:
            own = None
        else:
            own = prefill * factor / self.capacity.prefill_tokens_per_s
        if pool.phase is Phase.BOTH:
            return None if own is None or decode is None else math.ceil(own + decode)
        return None if own is None else math.ceil(own)

    def tick(self, state: RateState, observations: Sequence[Observation]) -> tuple[RateState, Plan]:
        """One size for each pool from the last minute's rates."""
        newest = observations[-1]
        now_s = newest.at_s
        bins = (
            *(b for b in state.bins if b.at_s > now_s - 300.0),
            *(bin_of(observation) for observation in observations),
        )
        demand = demand_level(bins, now_s=now_s, window_s=self.tier.level_window_s)
        states = {p.pool: p for p in newest.pools}
        decisions: list[Decision] = []
        wants: list[tuple[Want, ...]] = []
        for pool, remembered in zip(self.tier.pools, state.wants, strict=True):
            wanted = self.wanted(demand, pool)
            kept = tuple(w for w in remembered if w.at_s > now_s - self.down_window_s + 1e-6)
            if wanted is not None:
                kept = (*kept, Want(at_s=now_s, replicas=wanted))
            wants.append(kept)
            decisions.append(self._decision(pool, states.get(pool.pool), wanted, kept))
        state = RateState(bins=bins, wants=tuple(wants), epoch=state.epoch + 1)
        return state, _plan_of(self.tier, self.name, state, observations, tuple(decisions), demand)

    def _decision(
        self,
        pool: PoolSettings,
        seen: PoolState | None,
        wanted: int | None,
        wants: tuple[Want, ...],
    ) -> Decision:
        present = seen.desired_replicas if seen is not None else None
        if present is None or wanted is None:
            return Decision(
                pool=pool.pool,
                replicas=present,
                hold=True,
                reason=Reason.DEMAND_UNKNOWN,
                words="not known, held",
            )
        full = math.floor(self.down_window_s / self.tier.tick_s)
        enough = max(w.replicas for w in wants) if len(wants) >= full else max(present, wanted)
        replicas = wanted if wanted >= present else min(present, enough)
        replicas = max(pool.min_replicas, min(pool.max_replicas, replicas))
        reason = Reason.DEMAND_ROSE if replicas > present else Reason.DEMAND_FELL
        return Decision(
            pool=pool.pool,
            replicas=replicas,
            hold=replicas == present,
            reason=Reason.WITHIN_NEED if replicas == present else reason,
            words=f"{wanted} for the present rate",
            wanted_replicas=wanted,
        )


def _plan_of(
    tier: TierSettings,
    policy: str,
    state: RateState,
    observations: Sequence[Observation],
    decisions: tuple[Decision, ...],
    demand: Demand,
) -> Plan:
    return Plan(
        tier=tier.name,
        epoch=state.epoch,
        at_s=observations[-1].at_s,
        policy=policy,
        decisions=decisions,
        demand=demand,
    )
