"""What a run achieved and what it cost: one row of the comparison. Pure: no clock, no network.

A request is good if its time to first token and its own mean gap between tokens meet the targets;
what did not finish missed. Gaps are those of finished requests alone; one that never got a first
token counts as slower than any. Hours count every provisioned accelerator: starting, ready,
draining.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoscaler.types import Plan
from serving.simulation.plan import PoolPlan
from serving.types import Phase

REVERSAL_WINDOW_S = 600.0
REPLICA_WINDOW_S = (600.0, 3300.0)  # minutes 10 to 55


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Ready replicas of one phase, weighted by time."""

    min: float
    p10: float
    mean: float
    p90: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One policy's row. `ttft_missed_ratio` and `itl_missed_ratio` say which target was missed.

    Timelines are (time, replicas) by phase, changes only. Ready ones serve; wanted ones are what
    the policy had asked for. `minutes` are (arrived, good) requests by minute of arrival.
    `replicas` is over `replicas_window_s`; `None` where the run was over before it.
    """

    policy: str
    requests: int
    good_requests: int
    ttft_missed_ratio: float
    itl_missed_ratio: float
    accelerator_hours: dict[str, float]
    ttft_s: dict[str, float | None]
    itl_s: dict[str, float | None]
    scaling_actions: int
    reversals: int
    replicas: dict[str, Spread | None]
    replicas_window_s: tuple[float, float] = REPLICA_WINDOW_S
    unfinished_requests: int = 0
    headroom_ratio: float | None = None
    headroom_bracket: tuple[float, float] | None = None
    matched: bool | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    ready_timeline: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    wanted_timeline: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    minutes: list[tuple[int, int]] = field(default_factory=list)

    @property
    def attainment_ratio(self) -> float:
        """The share of all requests that met both targets."""
        return self.good_requests / self.requests if self.requests else 0.0

    @property
    def total_hours(self) -> float:
        """Accelerator-hours of all phases together."""
        return sum(self.accelerator_hours.values())


def spread_over_time(
    timeline: Sequence[tuple[float, int]], *, from_s: float, to_s: float
) -> Spread | None:
    """Quantiles of a step function, weighted by how long each value held.

    `None` where it has no value in the window: nothing was measured, which is not zero.
    """
    held: dict[int, float] = {}
    for index, (at_s, replicas) in enumerate(timeline):
        end_s = timeline[index + 1][0] if index + 1 < len(timeline) else math.inf
        lasted_s = min(end_s, to_s) - max(at_s, from_s)
        if lasted_s > 0.0:
            held[replicas] = held.get(replicas, 0.0) + lasted_s
    total_s = sum(held.values())
    if total_s <= 0.0:
        return None
    ordered = sorted(held)

    def quantile(ratio: float) -> float:
        seen_s = 0.0
        for replicas in ordered:
            seen_s += held[replicas]
            if seen_s >= ratio * total_s - 1e-9:
                return float(replicas)
        return float(ordered[-1])

    return Spread(
        min=float(ordered[0]),
        p10=quantile(0.1),
        mean=sum(n * lasted_s for n, lasted_s in held.items()) / total_s,
        p90=quantile(0.9),
        max=float(ordered[-1]),
    )


def replica_window(end_s: float) -> tuple[float, float]:
    """Minutes 10 to 55, or until a run's end within them; a shorter run leaves the window empty."""
    from_s, to_s = REPLICA_WINDOW_S
    return from_s, min(to_s, end_s) if end_s > from_s else to_s


def actions_and_reversals(changes: Sequence[tuple[float, str, int]]) -> tuple[int, int]:
    """Scaling actions, and those that undo the direction of one in the ten minutes before.

    `changes` are (time, pool, signed number of replicas), in order of time.
    """
    last: dict[str, tuple[float, int]] = {}
    reversals = 0
    for at_s, pool, delta in changes:
        before = last.get(pool)
        if before is not None and before[1] * delta < 0 and at_s - before[0] <= REVERSAL_WINDOW_S:
            reversals += 1
        last[pool] = (at_s, delta)
    return len(changes), reversals


def sum_timelines(timelines: Sequence[Sequence[tuple[float, int]]]) -> list[tuple[float, int]]:
    """The sum of several step functions, as one."""
    events = sorted(
        (at_s, index, replicas)
        for index, timeline in enumerate(timelines)
        for at_s, replicas in timeline
    )
    present: dict[int, int] = {}
    total: list[tuple[float, int]] = []
    for at_s, index, replicas in events:
        present[index] = replicas
        total.append((at_s, sum(present.values())))
    return total


def score(
    outcome: Mapping[str, Any],
    pools: Sequence[PoolPlan],
    *,
    policy: str,
    changes: Sequence[tuple[float, str, int]],
    headroom_ratio: float | None = None,
) -> Score:
    """The row of a run that has ended, from the simulated tier's own account of it.

    `outcome` is what the tier says of itself when asked with the targets, over HTTP or not.
    """
    by_name = {pool.name: pool for pool in pools}
    phases = [phase for phase in Phase if any(p.phase is phase for p in pools)]
    hours = {str(phase): 0.0 for phase in phases}
    for name, seconds in outcome["replica_seconds"].items():
        pool = by_name[name]
        hours[str(pool.phase)] += seconds * pool.accelerators_per_replica / 3600.0
    timelines = outcome["ready_timeline"]
    ready = {
        str(phase): sum_timelines([timelines[p.name] for p in pools if p.phase is phase])
        for phase in phases
    }
    window_s = replica_window(outcome["now_s"])
    replicas = {
        phase: spread_over_time(
            timeline, from_s=window_s[0], to_s=min(window_s[1], outcome["now_s"])
        )
        for phase, timeline in ready.items()
    }
    actions, reversals = actions_and_reversals(changes)
    requests = int(outcome["requests"])
    return Score(
        policy=policy,
        requests=requests,
        good_requests=int(outcome["good_requests"]),
        ttft_missed_ratio=outcome["ttft_missed_requests"] / max(1, requests),
        itl_missed_ratio=outcome["itl_missed_requests"] / max(1, requests),
        accelerator_hours=hours,
        ttft_s=_quantiles(outcome["ttft_s"]),
        itl_s=_quantiles(outcome["mean_itl_s"]),
        scaling_actions=actions,
        reversals=reversals,
        replicas=replicas,
        replicas_window_s=window_s,
        unfinished_requests=requests - int(outcome["finished_requests"]),
        headroom_ratio=headroom_ratio,
        ready_timeline=ready,
        wanted_timeline={
            phase: _wanted(timeline, [c for c in changes if str(by_name[c[1]].phase) == phase])
            for phase, timeline in ready.items()
        },
        minutes=[(arrived, good) for arrived, good in outcome.get("minutes", ())],
    )


def _wanted(
    ready: Sequence[tuple[float, int]], changes: Sequence[tuple[float, str, int]]
) -> list[tuple[float, int]]:
    """A run starts with what was asked for; each change adds its signed number to that."""
    start_s = ready[0][0]
    wanted = [(start_s, [replicas for at_s, replicas in ready if at_s == start_s][-1])]
    for at_s, _, delta in changes:
        wanted.append((at_s, wanted[-1][1] + delta))
    return wanted


def _quantiles(distribution: Mapping[str, float | None] | None) -> dict[str, float | None]:
    if distribution is None:
        return {"p50": None, "p99": None}
    return {"p50": distribution["p50"], "p99": distribution["p99"]}


def changes_of(plan: Plan, present: dict[str, int | None]) -> list[tuple[float, str, int]]:
    """The scaling actions that a plan asks for, given what each pool was asked to have."""
    found: list[tuple[float, str, int]] = []
    for decision in plan.decisions:
        before = present.get(decision.pool.name)
        if decision.replicas is not None and before is not None and decision.replicas != before:
            found.append((plan.at_s, decision.pool.name, decision.replicas - before))
    return found
