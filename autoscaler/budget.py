"""Sharing what all pools together may hold. Pure: no clock, no network, no log."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.types import Decision, Proposal, Reason, TierSettings
from serving.types import OverrideKind, PoolId

_WORTH_MOVING_RATIO = 1.25
"""How much better the worse-off pool must get before a replica that is used changes its pool."""


def within_budget(decisions: tuple[Decision, ...], tier: TierSettings) -> tuple[Decision, ...]:
    """The same decisions under the accelerator budget.

    While they cost more than the budget, the pool that has most over its exact need gives up one
    replica, never below its minimum. Pools of unknown size count nothing and are left alone. A
    pool that a person paused gives nothing, one that is pinned or floored only when no other can.
    What a pool has and still needs is taken for another only where the worse-off of them gains a
    quarter by it: else two short pools would hand one replica to and fro.
    """
    budget = tier.accelerator_budget
    if budget is None:
        return decisions
    replicas = {d.pool: d.replicas for d in decisions if d.replicas is not None}

    def cost() -> int:
        return sum(n * tier.pool(p).accelerators_per_replica for p, n in replicas.items())

    exact = {
        d.pool: max((n.replicas_exact for n in d.needs if n.sizes_pool), default=0.0)
        for d in decisions
    }
    asked = {d.pool: d.override.kind for d in decisions if d.override is not None}
    while cost() > budget:
        givers = [
            p
            for p, n in replicas.items()
            if n > tier.pool(p).min_replicas and asked.get(p) is not OverrideKind.PAUSE
        ]
        givers = [p for p in givers if p not in asked] or givers
        if not givers:
            break
        richest = max(givers, key=lambda p: (replicas[p] / max(exact[p], 1e-9), p.name))
        replicas[richest] -= 1
    if not asked:
        replicas = _unless_worth_moving(decisions, tier, replicas, exact, budget)
    return tuple(_limited(d, replicas.get(d.pool), budget) for d in decisions)


def _limited(decision: Decision, replicas: int | None, budget: int) -> Decision:
    if replicas is None or replicas == decision.replicas or decision.replicas is None:
        return decision
    words = f"the budget of {budget} accelerators leaves {replicas} of {decision.replicas}"
    proposal = Proposal(
        replicas=decision.replicas, reason=decision.reason, steps=decision.steps
    ).moved("within_budget", replicas, Reason.BUDGET_LIMITED, words)
    before = decision.steps[0].before_replicas if decision.steps else decision.replicas
    return replace(
        decision,
        replicas=replicas,
        hold=replicas == before,
        reason=Reason.BUDGET_LIMITED,
        words=words,
        steps=proposal.steps,
    )


def _unless_worth_moving(
    decisions: tuple[Decision, ...],
    tier: TierSettings,
    shared: dict[PoolId, int],
    exact: dict[PoolId, float],
    budget: int,
) -> dict[PoolId, int]:
    """What was shared out, or what the pools have now where moving some of it gains too little."""
    wanted = {d.pool: d.replicas for d in decisions if d.replicas is not None}
    present = {d.pool: d.steps[0].before_replicas for d in decisions if d.steps}
    if set(present) < set(wanted):
        return shared
    kept = {pool: min(number, present[pool]) for pool, number in wanted.items()}
    if all(shared[pool] >= number for pool, number in kept.items()):
        return shared  # nobody loses what it has and needs

    def cost(replicas: dict[PoolId, int]) -> int:
        return sum(n * tier.pool(p).accelerators_per_replica for p, n in replicas.items())

    def worst(replicas: dict[PoolId, int]) -> float:
        return min(n / max(exact[p], 1e-9) for p, n in replicas.items())

    if cost(kept) > budget:
        return shared
    while True:  # room that is left goes to whoever is worst off
        short = sorted(
            (p for p, n in kept.items() if n < wanted[p]),
            key=lambda p: (kept[p] / max(exact[p], 1e-9), p.name),
        )
        fits = [p for p in short if cost(kept) + tier.pool(p).accelerators_per_replica <= budget]
        if not fits:
            break
        kept[fits[0]] += 1
    return shared if worst(shared) >= _WORTH_MOVING_RATIO * worst(kept) else kept
