"""Folding a ledger: to start again where a run ended, and to check that it decided what it says.

Pure but for reading the ledger that it is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoscaler.codec import dump_plan, state_hash
from autoscaler.ledger import Ledger
from autoscaler.state import LearnedState, new_state
from autoscaler.tick import tick
from autoscaler.types import Plan, TierSettings
from serving.errors import Misconfigured


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedTick:
    """One tick folded again. `differences` says in words what came out otherwise; empty is good."""

    epoch: int
    at_s: float
    differences: tuple[str, ...]


def resume(ledger: Ledger, tier: TierSettings) -> LearnedState:
    """The state in which the last finished tick left the tier; a new one for a new ledger.

    Settings may have changed since: the past is folded with those that held then. A tier whose
    pools are others now starts anew, since what was learned belongs to pools.
    """
    last = ledger.last_state()
    if last is None or [p.pool for p in last.settings.pools] != [p.pool for p in tier.pools]:
        return new_state(tier) if last is None else _renumbered(new_state(tier), ledger)
    state = last.state
    for recorded in ledger.ticks(after_epoch=last.epoch):
        state, _ = tick(state, recorded.observations, last.settings)
    return state


def _renumbered(state: LearnedState, ledger: Ledger) -> LearnedState:
    newest = max((recorded.epoch for recorded in ledger.ticks()), default=0)
    return replace(state, epoch=newest)


def _as_far_as_written(now: Plan, then: Plan) -> Plan:
    """The plan without what a ledger from before counterfactuals does not hold."""
    if any(d.counterfactuals or any(n.work for n in d.needs) for d in then.decisions):
        return now
    decisions = tuple(
        replace(d, counterfactuals=(), needs=tuple(replace(n, work=None) for n in d.needs))
        for d in now.decisions
    )
    return replace(now, decisions=decisions)


def replay(ledger: Ledger) -> Iterator[ReplayedTick]:
    """Fold every tick again, each from the full state before it, and compare plan and state."""
    starts = {recorded.epoch: recorded for recorded in ledger.states()}
    if not starts:
        raise Misconfigured(
            "nothing can be replayed",
            where=str(ledger.path),
            found="no recorded state",
            expected="a ledger of at least one run",
        )
    first = min(starts)
    state, settings = starts[first].state, starts[first].settings
    for recorded in ledger.ticks(after_epoch=first):
        differences: list[str] = []
        before = starts.get(recorded.epoch - 1)
        if before is not None:
            if state_hash(before.state) != state_hash(state):
                differences.append("the full state recorded before this tick is another one")
            state, settings = before.state, before.settings
        state, plan = tick(state, recorded.observations, settings)
        plan = _as_far_as_written(plan, recorded.plan)
        if plan != recorded.plan or dump_plan(plan) != dump_plan(recorded.plan):
            for now, then in zip(plan.decisions, recorded.plan.decisions, strict=False):
                if now != then:
                    differences.append(
                        f"{then.pool}: {then.replicas} ({then.reason}) was recorded, "
                        f"{now.replicas} ({now.reason}) comes out"
                    )
            if not differences:
                differences.append("the plan's demand or ratio comes out otherwise")
        if state_hash(state) != recorded.state_hash:
            differences.append("the state after this tick comes out otherwise")
        yield ReplayedTick(epoch=recorded.epoch, at_s=recorded.at_s, differences=tuple(differences))
