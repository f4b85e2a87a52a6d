import dataclasses

import pytest

from autoscaler.state import Want, new_pool
from autoscaler.steps import (
    STEPS,
    StepInput,
    follow_need,
    keep_limits,
    never_down_blind,
    reactive_guard,
    slow_down,
)
from autoscaler.types import (
    Bottleneck,
    Forecast,
    Need,
    PoolSettings,
    Proposal,
    Reason,
    TierSettings,
)
from serving.testing import DECODE, PREFILL, make_pool_state, make_sample
from serving.types import Slo

NOW_S = 1000.0
SLO = Slo(ttft_s=2.5, itl_s=0.05, attainment_ratio=0.99)
LEARNED = 100.0  # windows, far more than are needed


def need(replicas, *, feasible=True):
    return Need(
        bottleneck=Bottleneck.COMPUTE,
        replicas_exact=float(replicas),
        replicas=replicas,
        demand_per_s=1.0,
        replica_capacity_per_s=1.0,
        feasible=feasible,
        words="1 token/s over 1 a replica",
    )


def forecast(errors_known=60):
    return Forecast(
        made_at_s=NOW_S,
        lead_s=135.0,
        level_per_s=1.0,
        expected_per_s=1.0,
        upper_per_s=1.0,
        upper_ratio=0.9,
        forecaster="last_value",
        history_s=900.0,
        errors_known=errors_known,
    )


def seen(pool=PREFILL, *, present=8, wanted=5, wants=8, **changes):
    """A pool that is well known in every respect, so that one change at a time can be made."""
    settings = PoolSettings(pool=pool, min_replicas=2, max_replicas=20)
    known = new_pool(settings)
    fit = dataclasses.replace(known.prefill.fit, total_weight=LEARNED)
    known = dataclasses.replace(
        known,
        prefill=dataclasses.replace(known.prefill, fit=fit),
        decode=dataclasses.replace(
            known.decode, fit=dataclasses.replace(known.decode.fit, total_weight=LEARNED)
        ),
        last_known_s=NOW_S - changes.pop("blind_s", 0.0),
        sample=make_sample(pool, at_s=NOW_S, **changes.pop("values", {})),
        wants=tuple(
            Want(at_s=NOW_S - 15.0 * (k + 1), replicas=changes.get("past", wanted))
            for k in range(wants)
        ),
    )
    changes.pop("past", None)
    fields = {
        "tier": TierSettings(name="demo", slo=SLO, pools=(settings,)),
        "settings": settings,
        "learned": known,
        "state": make_pool_state(pool, at_s=NOW_S, desired=present),
        "need": None if wanted is None else need(wanted),
        "kept_replicas": wanted,
        "forecast": forecast(),
        "censored": False,
        "now_s": NOW_S,
    }
    return StepInput(**(fields | changes))


def decided(step_input):
    proposal = Proposal(replicas=step_input.present_replicas, reason=Reason.WITHIN_NEED)
    for rule in STEPS:
        proposal = rule(proposal, step_input)
    return proposal


@pytest.mark.parametrize(
    ("step_input", "replicas", "reason"),
    [
        pytest.param(seen(wanted=8), 8, Reason.WITHIN_NEED, id="enough"),
        pytest.param(seen(wanted=11), 11, Reason.DEMAND_ROSE, id="more-at-once"),
        pytest.param(seen(wanted=5), 5, Reason.DEMAND_FELL, id="less-after-a-whole-window"),
        pytest.param(seen(wanted=None), 8, Reason.DEMAND_UNKNOWN, id="demand-unknown-holds"),
        pytest.param(seen(wanted=5, wants=7), 8, Reason.SCALE_DOWN_STABILIZED, id="window-short"),
        pytest.param(seen(wanted=5, past=8), 8, Reason.SCALE_DOWN_STABILIZED, id="needed-lately"),
        pytest.param(seen(wanted=5, past=6), 6, Reason.DEMAND_FELL, id="only-to-what-was-needed"),
        pytest.param(seen(wanted=5, blind_s=30.0), 8, Reason.COVERAGE_LOW, id="blind-never-down"),
        pytest.param(seen(wanted=11, blind_s=30.0), 11, Reason.DEMAND_ROSE, id="blind-may-grow"),
        pytest.param(
            seen(wanted=5, forecast=forecast(errors_known=3)),
            8,
            Reason.FORECAST_UNPROVEN,
            id="forecast-unproven",
        ),
        pytest.param(seen(wanted=5, censored=True), 8, Reason.DEMAND_CENSORED, id="lower-bound"),
        pytest.param(seen(wanted=1, past=1), 2, Reason.AT_MINIMUM, id="minimum"),
        pytest.param(seen(wanted=50), 20, Reason.AT_MAXIMUM, id="maximum"),
        pytest.param(
            seen(need=need(99, feasible=False), kept_replicas=99),
            8,
            Reason.SLO_INFEASIBLE,
            id="infeasible-does-not-grow-for-ever",
        ),
    ],
)
def test_what_a_pool_of_eight_gets_and_why(step_input, replicas, reason):
    proposal = decided(step_input)

    assert (proposal.replicas, proposal.reason) == (replicas, reason)


def test_a_pool_whose_capacity_is_not_learned_does_not_shrink():
    step_input = seen(wanted=5)
    fresh = dataclasses.replace(
        step_input,
        learned=dataclasses.replace(
            step_input.learned, prefill=new_pool(step_input.settings).prefill
        ),
    )

    assert decided(fresh).reason is Reason.CAPACITY_NOT_LEARNED


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (109, "109 wanted, the pool's maximum is 20"),
        (1, "1 wanted, the pool's minimum is 2"),
    ],
)
def test_a_limit_that_holds_says_what_was_wanted(wanted, words):
    assert decided(seen(wanted=wanted, past=wanted)).steps[-1].words == words


def test_no_step_is_without_words():
    blind = {"blind_s": 30.0}
    for changes in ({}, blind, {"censored": True}, {"wants": 2}, {"need": None}):
        for wanted in (1, 5, 8, 11, 109):
            assert all(step.words for step in decided(seen(wanted=wanted, **changes)).steps)


@pytest.mark.parametrize(
    ("pool", "values", "starting", "replicas"),
    [
        pytest.param(PREFILL, {"queue_time_mean_s": 2.0}, 0, 9, id="prompts-wait"),
        pytest.param(PREFILL, {"queue_time_mean_s": 2.0}, 1, 8, id="help-is-on-its-way"),
        pytest.param(PREFILL, {"queue_time_mean_s": 0.2}, 0, 8, id="short-wait"),
        pytest.param(PREFILL, {"queue_time_mean_s": None}, 0, 8, id="wait-unknown"),
        # 8 * 0.070 / 0.050 = 11.2, rounded up
        pytest.param(DECODE, {"itl_mean_s": 0.070}, 0, 12, id="gaps-too-long"),
        pytest.param(DECODE, {"itl_mean_s": 0.049}, 0, 8, id="gaps-within-target"),
        pytest.param(DECODE, {"hottest_kv_used_ratio": 0.99}, 0, 9, id="kv-full-on-one"),
        pytest.param(DECODE, {"queue_time_mean_s": 9.0}, 0, 8, id="decode-queue-holds-transfers"),
    ],
)
def test_latency_over_the_target_raises_the_pool_now(pool, values, starting, replicas):
    step_input = seen(
        pool,
        wanted=8,
        values=values,
        state=make_pool_state(pool, at_s=NOW_S, desired=8, ready=8, starting=starting),
    )

    assert decided(step_input).replicas == replicas


def test_a_target_that_no_size_meets_does_not_grow_a_pool_however_late_it_is():
    step_input = seen(
        DECODE, need=need(99, feasible=False), kept_replicas=99, values={"itl_mean_s": 0.2}
    )

    assert decided(step_input).replicas == 8


@pytest.mark.parametrize(
    "rule", [follow_need, never_down_blind, slow_down, reactive_guard, keep_limits]
)
def test_a_step_that_changes_the_number_says_why(rule):
    step_input = seen(wanted=5, wants=2, values={"queue_time_mean_s": 9.0})
    for replicas in (1, 5, 8, 99):
        before = Proposal(replicas=replicas, reason=Reason.WITHIN_NEED)
        after = rule(before, step_input)
        if after.replicas != before.replicas:
            assert after.steps[-1].before_replicas == before.replicas
            assert after.steps[-1].after_replicas == after.replicas
            assert after.reason is after.steps[-1].reason
