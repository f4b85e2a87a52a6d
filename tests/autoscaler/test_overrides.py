import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.budget import within_budget
from autoscaler.plan import in_force
from autoscaler.testing import TIER, Load, decision_in, recorded_run, state_in
from autoscaler.types import Decision, Reason
from serving.testing import DECODE, PREFILL
from serving.types import Override, OverrideKind

FOREVER_S = 1e6


def asked(kind, replicas=None, *, pool="prefill", until_s=FOREVER_S):
    return Override(
        kind=OverrideKind(kind), pool=pool, replicas=replicas, until_s=until_s, by="ann"
    )


def last_decision(*overrides, scale=1.0, warm=24, blind=(), sizes=None):
    """The decision on prefill after some settled minutes, under a person's word."""
    loads = [Load()] * warm + [Load(scale=scale, overrides=overrides, blind=blind, sizes=sizes)] * 8
    (*_, last) = recorded_run(loads)
    return decision_in(last, "prefill"), state_in(last, "prefill").desired_replicas


def test_without_a_word_the_pool_follows_its_need():
    decision, _ = last_decision(scale=3.0)

    assert decision.reason in (Reason.DEMAND_ROSE, Reason.WITHIN_NEED)
    assert decision.replicas == decision.wanted_replicas
    assert decision.override is None


@pytest.mark.parametrize(
    ("override", "replicas", "reason"),
    [
        pytest.param(asked("pause"), 9, Reason.PAUSED, id="a-pause-stays"),
        pytest.param(asked("pin", 30), 30, Reason.PINNED, id="a-pin-over-the-need"),
        pytest.param(asked("pin", 3), 3, Reason.PINNED, id="a-pin-under-the-need"),
        pytest.param(asked("pin", 99), 50, Reason.PINNED, id="a-pin-keeps-the-maximum"),
        pytest.param(asked("pin", 0), 2, Reason.PINNED, id="a-pin-keeps-the-minimum"),
        pytest.param(asked("floor", 30), 30, Reason.FLOORED, id="a-floor-over-the-need"),
    ],
)
@pytest.mark.parametrize("blind", [(), (PREFILL,)], ids=["seen", "blind"])
def test_a_persons_word_holds_whatever_is_seen(override, replicas, reason, blind):
    # 9 is asked for at the first of the last ticks; a pause then leaves it there at three times
    # the load
    decision, _ = last_decision(override, scale=3.0, blind=blind, sizes={"prefill": 9})
    if override.kind is OverrideKind.PAUSE:
        assert decision.hold
        replicas = 9

    assert (decision.replicas, decision.reason) == (replicas, reason)
    assert decision.override == override
    assert "ann" in decision.words


def test_a_floor_that_is_met_changes_nothing_and_says_nothing():
    plain, _ = last_decision()
    floored, _ = last_decision(asked("floor", 2))

    assert (floored.replicas, floored.reason) == (plain.replicas, plain.reason)
    assert floored.override is not None


def test_a_word_for_one_pool_is_not_one_for_the_other():
    (*_, last) = recorded_run([Load(overrides=(asked("pin", 30),))] * 4)

    assert decision_in(last, "prefill").replicas == 30
    assert decision_in(last, "decode").override is None
    assert decision_in(last, "decode").replicas != 30


@pytest.mark.parametrize(
    ("until_s", "holds"),
    [(59.0, False), (60.0, False), (61.0, True)],
    ids=["over", "ends-now", "still"],
)
def test_a_word_ends_by_itself_at_its_time(until_s, holds):
    (*_, last) = recorded_run([Load(overrides=(asked("pin", 30, until_s=until_s),))] * 4)

    assert last.at_s == 60.0
    assert (decision_in(last, "prefill").reason is Reason.PINNED) is holds


def test_the_last_word_on_a_pool_counts():
    words = (asked("pin", 30), asked("pause", pool="decode"), asked("pin", 7))

    assert in_force(words, 0.0) == {"prefill": words[2], "decode": words[1]}


def test_a_pool_of_unknown_size_is_left_alone_even_when_pinned():
    (*_, last) = recorded_run([Load(lost=(PREFILL,), overrides=(asked("pin", 30),))] * 3)

    assert decision_in(last, "prefill").replicas is None
    assert decision_in(last, "prefill").reason is Reason.POOL_STATE_UNKNOWN


@settings(max_examples=25)
@given(
    st.sampled_from(["pause", "floor", None]),
    st.integers(2, 50),
    st.floats(0.01, 5.0),
    st.booleans(),
)
def test_what_is_not_seen_never_shrinks_but_by_a_pin(kind, replicas, scale, lost):
    words = () if kind is None else (asked(kind, None if kind == "pause" else replicas),)
    dark = Load(blind=(PREFILL, DECODE), lost=(PREFILL,) if lost else (), overrides=words)
    ticks = recorded_run([Load(scale=scale)] * 8 + [dark] * 8)

    for made in ticks[10:]:  # past what is still fresh
        for decision in made.plan.decisions:
            present = state_in(made, decision.pool.name).desired_replicas
            assert decision.replicas is None or decision.replicas >= (present or 0)


def limited(budget, *decisions):
    tier = dataclasses.replace(TIER, accelerator_budget=budget)
    return tuple(d.replicas for d in within_budget(decisions, tier))


def wants(pool, replicas, override=None):
    return Decision(
        pool=pool,
        replicas=replicas,
        hold=False,
        reason=Reason.DEMAND_ROSE,
        words="",
        override=override,
    )


@pytest.mark.parametrize(
    ("override", "budget", "given_replicas"),
    [
        pytest.param(None, 10, (5, 5), id="nobody-asked"),
        pytest.param(asked("pause"), 10, (8, 2), id="what-is-paused-gives-nothing"),
        pytest.param(asked("pause"), 5, (8, 2), id="not-even-over-the-budget"),
        pytest.param(asked("pin", 8), 10, (8, 2), id="what-is-pinned-gives-last"),
        pytest.param(asked("pin", 8), 5, (3, 2), id="but-before-the-budget-breaks"),
    ],
)
def test_the_budget_spares_what_a_person_asked_for(override, budget, given_replicas):
    assert limited(budget, wants(PREFILL, 8, override), wants(DECODE, 8)) == given_replicas
