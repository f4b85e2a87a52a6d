"""What KEDA is told: a published plan, a question and an age in, an answer or a refusal out.

What is not known is refused, never answered with zero: KEDA and the HPA hold on a refusal and
would scale on a zero. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from autoscaler.types import Decision, Plan, Reason

TIER_KEY = "tier"
POOL_KEY = "pool"
TARGET_PER_REPLICA = 1

_BLIND_AFTER_S = 20.0  # as TierSettings.fresh_s
_BLIND = frozenset({Reason.DEMAND_UNKNOWN, Reason.POOL_STATE_UNKNOWN, Reason.COVERAGE_LOW})


class Refused(StrEnum):
    """Why there is no number; named as the gRPC status that carries it."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error in place of an answer, with a sentence for whoever reads KEDA's log."""

    status: Refused
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPool:
    """The pool that a question is about; it is one that the settings name."""

    tier: str
    pool: str

    @property
    def metric_name(self) -> str:
        """The pool's metric, the same for ever; KEDA puts the trigger's number before it."""
        return f"phasewise-{self.tier}-{self.pool}".replace(".", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPlan:
    """A tier's plan as a watcher saw it last.

    `age_s` is the time since its heartbeat was last seen to move, by the watcher's own clock;
    `None` as long as it never moved under the watcher's eyes, for then it may be of any age.
    """

    plan: Plan | None = None
    mode: Literal["advise", "act"] = "advise"
    age_s: float | None = None
    problem: str = ""


def asked_pool(
    metadata: Mapping[str, str], pools: Mapping[str, Collection[str]]
) -> AskedPool | Refusal:
    """Which pool a ScaledObject's `scalerMetadata` names, among the `pools` of each known tier."""
    missing = [key for key in (TIER_KEY, POOL_KEY) if not metadata.get(key)]
    if missing:
        return Refusal(
            status=Refused.INVALID_ARGUMENT,
            words=f"the trigger's metadata lacks {' and '.join(missing)}",
        )
    tier, pool = metadata[TIER_KEY], metadata[POOL_KEY]
    if tier not in pools:
        return Refusal(
            status=Refused.NOT_FOUND,
            words=f"no tier is called {tier!r}; there is {', '.join(sorted(pools))}",
        )
    if pool not in pools[tier]:
        return Refusal(
            status=Refused.NOT_FOUND,
            words=f"tier {tier} has no pool {pool!r}; it has {', '.join(sorted(pools[tier]))}",
        )
    return AskedPool(tier=tier, pool=pool)


def wrong_metric(asked: AskedPool, metric_name: str) -> Refusal | None:
    """The refusal of a metric that is not the pool's own."""
    if metric_name == asked.metric_name:
        return None
    return Refusal(
        status=Refused.NOT_FOUND,
        words=f"{asked.tier}/{asked.pool} has no metric {metric_name!r}; "
        f"it has {asked.metric_name}",
    )


def desired_replicas(asked: AskedPool, seen: SeenPlan, *, stale_after_s: float) -> int | Refusal:
    """How many replicas the pool should have, if that is known now and may be acted on."""
    name = f"{asked.tier}/{asked.pool}"
    if seen.plan is None:
        return _unavailable(f"{name} was never planned: {seen.problem or 'no plan is published'}")
    if seen.age_s is None:
        return _unavailable(f"the plan of {asked.tier} has not been renewed since this server runs")
    if seen.age_s > stale_after_s:
        return _unavailable(
            f"the plan of {asked.tier} was last renewed {seen.age_s:.0f} s ago, "
            f"more than {stale_after_s:g} s"
        )
    if seen.mode != "act":
        return Refusal(
            status=Refused.FAILED_PRECONDITION,
            words=f"{asked.tier} is in mode {seen.mode}: phasewise shows what it would do and "
            "nobody acts on it",
        )
    decision = _decision(asked, seen.plan)
    if decision is None or decision.replicas is None:
        words = "the plan does not have it" if decision is None else decision.words
        return _unavailable(f"how many replicas {name} should have is not known: {words}")
    if decision.hold and (decision.reason in _BLIND or _is_blind(decision)):
        return _unavailable(f"{name} holds because its inputs are not known: {decision.words}")
    return decision.replicas


def _is_blind(decision: Decision) -> bool:
    """Held by another rule (a limit, say), but nobody has seen the pool lately all the same."""
    return decision.inputs_age_s is not None and decision.inputs_age_s > _BLIND_AFTER_S


def _decision(asked: AskedPool, plan: Plan) -> Decision | None:
    if plan.tier != asked.tier:
        return None
    return next((d for d in plan.decisions if d.pool.name == asked.pool), None)


def _unavailable(words: str) -> Refusal:
    return Refusal(status=Refused.UNAVAILABLE, words=words)
