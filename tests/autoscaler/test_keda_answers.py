"""What KEDA is told: a truth table, with a refusal wherever a number would be a guess."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.keda_answers import (
    AskedPool,
    Refusal,
    Refused,
    SeenPlan,
    asked_pool,
    desired_replicas,
    wrong_metric,
)
from autoscaler.types import Decision, Plan, Reason
from serving.types import Phase, PoolId

POOLS = {"chat": ("prefill", "decode"), "code": ("all",)}
PREFILL = PoolId(tier="chat", name="prefill", phase=Phase.PREFILL, variant="v")
ASKED = AskedPool(tier="chat", pool="prefill")
GROWS = Decision(pool=PREFILL, replicas=7, hold=False, reason=Reason.DEMAND_ROSE, words="more")


def _plan(*decisions: Decision, tier: str = "chat") -> Plan:
    return Plan(tier=tier, epoch=3, at_s=100.0, policy="phasewise", decisions=decisions)


def _seen(decision: Decision = GROWS, *, age_s: float | None = 10.0) -> SeenPlan:
    return SeenPlan(plan=_plan(decision), mode="act", age_s=age_s)


def _hold(reason: Reason, replicas: int | None = 4) -> Decision:
    return replace(GROWS, replicas=replicas, hold=True, reason=reason, words="because")


NUMBERS = [
    pytest.param(_seen(), 7, id="grows"),
    pytest.param(_seen(age_s=90.0), 7, id="exactly-as-old-as-allowed"),
    pytest.param(_seen(replace(GROWS, replicas=0, reason=Reason.DEMAND_FELL)), 0, id="known-zero"),
    pytest.param(_seen(_hold(Reason.WITHIN_NEED)), 4, id="a-hold-that-is-enough"),
    pytest.param(_seen(_hold(Reason.SCALE_DOWN_STABILIZED)), 4, id="a-hold-that-waits"),
    pytest.param(_seen(replace(GROWS, reason=Reason.DEMAND_UNKNOWN)), 7, id="blind-but-it-grows"),
]


@pytest.mark.parametrize(("seen", "replicas"), NUMBERS)
def test_what_is_known_is_answered(seen: SeenPlan, replicas: int) -> None:
    assert desired_replicas(ASKED, seen, stale_after_s=90.0) == replicas


UNAVAILABLE = Refused.UNAVAILABLE
REFUSALS = [
    pytest.param(
        SeenPlan(problem="no such file"),
        UNAVAILABLE,
        "chat/prefill was never planned: no such file",
        id="no-plan",
    ),
    pytest.param(
        _seen(age_s=None),
        UNAVAILABLE,
        "the plan of chat has not been renewed since this server runs",
        id="age-unknown",
    ),
    pytest.param(
        _seen(age_s=90.1),
        UNAVAILABLE,
        "the plan of chat was last renewed 90 s ago, more than 90 s",
        id="stale",
    ),
    pytest.param(
        _seen(replace(_hold(Reason.AT_MAXIMUM), inputs_age_s=40.0)),
        UNAVAILABLE,
        "chat/prefill holds because its inputs are not known: because",
        id="blind-at-its-maximum",
    ),
    pytest.param(
        replace(_seen(), mode="advise"),
        Refused.FAILED_PRECONDITION,
        "chat is in mode advise: phasewise shows what it would do and nobody acts on it",
        id="advise",
    ),
    pytest.param(
        replace(_seen(age_s=999.0), mode="advise"),
        UNAVAILABLE,
        "the plan of chat was last renewed 999 s ago, more than 90 s",
        id="stale-advice-is-stale-first",
    ),
    pytest.param(
        _seen(_hold(Reason.POOL_STATE_UNKNOWN, replicas=None)),
        UNAVAILABLE,
        "how many replicas chat/prefill should have is not known: because",
        id="number-unknown",
    ),
    pytest.param(
        SeenPlan(plan=_plan(), mode="act", age_s=1.0),
        UNAVAILABLE,
        "how many replicas chat/prefill should have is not known: the plan does not have it",
        id="pool-not-in-the-plan",
    ),
    pytest.param(
        SeenPlan(plan=_plan(GROWS, tier="other"), mode="act", age_s=1.0),
        UNAVAILABLE,
        "how many replicas chat/prefill should have is not known: the plan does not have it",
        id="plan-of-another-tier",
    ),
    *(
        pytest.param(
            _seen(_hold(reason)),
            UNAVAILABLE,
            "chat/prefill holds because its inputs are not known: because",
            id=f"blind-{reason}",
        )
        for reason in (Reason.DEMAND_UNKNOWN, Reason.COVERAGE_LOW, Reason.POOL_STATE_UNKNOWN)
    ),
]


@pytest.mark.parametrize(("seen", "status", "words"), REFUSALS)
def test_what_is_not_known_is_refused_with_its_reason(
    seen: SeenPlan, status: Refused, words: str
) -> None:
    assert desired_replicas(ASKED, seen, stale_after_s=90.0) == Refusal(status=status, words=words)


def test_the_metadata_names_the_pool_and_more_of_it_is_no_harm() -> None:
    metadata = {"tier": "chat", "pool": "decode", "scalerAddress": "phasewise:6000"}

    assert asked_pool(metadata, POOLS) == AskedPool(tier="chat", pool="decode")


NOT_NAMED = [
    pytest.param({}, Refused.INVALID_ARGUMENT, "tier and pool", id="nothing"),
    pytest.param({"tier": "chat"}, Refused.INVALID_ARGUMENT, "lacks pool", id="no-pool"),
    pytest.param({"pool": "all", "tier": ""}, Refused.INVALID_ARGUMENT, "lacks tier", id="empty"),
    pytest.param(
        {"tier": "cat", "pool": "all"},
        Refused.NOT_FOUND,
        "no tier is called 'cat'; there is chat, code",
        id="tier",
    ),
    pytest.param(
        {"tier": "chat", "pool": "all"},
        Refused.NOT_FOUND,
        "tier chat has no pool 'all'; it has decode, prefill",
        id="pool-of-another-tier",
    ),
]


@pytest.mark.parametrize(("metadata", "status", "words"), NOT_NAMED)
def test_a_pool_that_is_not_named_or_not_known_is_refused(
    metadata: dict[str, str], status: Refused, words: str
) -> None:
    refusal = asked_pool(metadata, POOLS)

    assert isinstance(refusal, Refusal)
    assert refusal.status is status
    assert words in refusal.words


def test_a_pool_has_one_metric_whose_name_can_stand_in_a_path() -> None:
    assert ASKED.metric_name == "phasewise-chat-prefill"
    assert AskedPool(tier="a.b", pool="c.d").metric_name == "phasewise-a-b-c-d"
    assert wrong_metric(ASKED, "phasewise-chat-prefill") is None


@pytest.mark.parametrize("name", ["", "s0-phasewise-chat-prefill", "phasewise-chat-decode"])
def test_any_other_metric_is_not_found(name: str) -> None:
    refusal = wrong_metric(ASKED, name)

    assert refusal is not None
    assert refusal.status is Refused.NOT_FOUND
