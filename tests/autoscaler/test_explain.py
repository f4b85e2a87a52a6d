import dataclasses
import math
import re

import pytest

from autoscaler.explain import explain, unit_of
from autoscaler.testing import TIER, Load, recorded_run
from autoscaler.types import Reason
from serving.testing import DECODE, PREFILL
from serving.types import Override, OverrideKind

WARM = [Load()] * 60
HARD = dataclasses.replace(TIER, slo=dataclasses.replace(TIER.slo, ttft_s=0.1))


def last(loads, pool="prefill", *, settings=TIER):
    (*_, made) = recorded_run(loads, settings=settings)
    return explain(made, settings, pool)


def pin(replicas, kind="pin"):
    return Override(
        kind=OverrideKind(kind), pool="prefill", replicas=replicas, until_s=1e4, by="ann"
    )


def budget(accelerators):
    return dataclasses.replace(TIER, accelerator_budget=accelerators)


@pytest.mark.parametrize(
    ("found", "reason", "said", "change"),
    [
        pytest.param(
            last(WARM),
            Reason.WITHIN_NEED,
            r"^prefill stays at (\d+) replicas: that is what is needed\. Measured now: prompts "
            r"wait [\d.]+ s, 99\.5% of first tokens within 2\.5 s\. Compute binds: ",
            r"^It grows as soon as more than \d+ are needed",
            id="enough",
        ),
        pytest.param(
            last([*WARM, Load(scale=2.0), Load(scale=2.0)]),
            Reason.DEMAND_ROSE,
            r"^prefill grows from \d+ to \d+ replicas\. Measured now: .*\. Compute binds: [\d,]+ "
            r"input tokens/s over",
            r"a margin of 5%",
            id="grows",
        ),
        pytest.param(
            last([*WARM, *[Load(scale=0.4)] * 6]),
            Reason.SCALE_DOWN_STABILIZED,
            r"^prefill does not shrink from \d+ to the \d+ that would do now: less must have been "
            r"enough for a whole window first \(\d+ was needed within the last 120 s",
            r"It shrinks once the need with a margin of 5%, which is \d+ now, was less than \d+ "
            r"for 120 s on end\.$",
            id="does-not-shrink-yet",
        ),
        pytest.param(
            last([*WARM, *[Load(scale=0.4)] * 12]),
            Reason.DEMAND_FELL,
            r"^prefill shrinks from \d+ to \d+ replicas",
            r"It grows as soon as",
            id="shrinks",
        ),
        pytest.param(
            last([Load(scale=0.4)] * 2),
            Reason.CAPACITY_NOT_LEARNED,
            r"^prefill does not shrink from 8 to the \d+ that would do now: what one replica "
            r"carries is not learned yet",
            r"It shrinks once enough windows of work were seen and",
            id="not-learned",
        ),
        pytest.param(
            last([*WARM, *[Load(blind=(PREFILL,), router=False)] * 20]),
            Reason.DEMAND_UNKNOWN,
            r"^prefill stays at \d+ replicas: its demand is not known \(nothing known for \d+ s\), "
            r"and unknown is not zero\.$",
            r"^It is sized again once its work was seen within the last 20 s",
            id="blind",
        ),
        pytest.param(
            last([*WARM, Load(lost=(PREFILL,))]),
            Reason.POOL_STATE_UNKNOWN,
            r"^prefill is left alone: what it is asked to have is not known\.$",
            r"^It is steered again once its scale target says",
            id="size-unknown",
        ),
        pytest.param(
            last([*WARM, Load(overrides=(pin(3),))]),
            Reason.PINNED,
            r"^prefill shrinks from \d+ to 3 replicas because a person asked for it: "
            r"pinned to 3 by ann for another \d+ s\. .* Compute binds",
            r"^The word of ann ends in \d+ s",
            id="pinned",
        ),
        pytest.param(
            last([*WARM, Load(overrides=(pin(30, "floor"),))]),
            Reason.FLOORED,
            r"to 30 replicas because a person asked for it: at least 30 by ann",
            r"ann asked for at least 30, for another \d+ s\.$",
            id="floored",
        ),
        pytest.param(
            last([Load(scale=20.0)] * 4),
            Reason.AT_MAXIMUM,
            r"^prefill stays at 50 replicas, the largest size that its limits allow: \d+ wanted, "
            r"the pool's maximum is 50\.",
            r"^It does not grow over its maximum of 50\.",
            id="maximum",
        ),
        pytest.param(
            last([*WARM, Load(scale=2.0)], settings=budget(8)),
            Reason.BUDGET_LIMITED,
            r"^prefill .* the budget of 8 accelerators leaves \d+ of \d+\.",
            r"It grows as soon as",
            id="budget",
        ),
        pytest.param(
            last([Load()] * 4, settings=HARD),
            Reason.SLO_INFEASIBLE,
            r"^prefill stays at 8 replicas: no number of replicas meets the target",
            r"^Only another target, engine or accelerator",
            id="infeasible",
        ),
    ],
)
def test_a_stranger_is_told_what_was_decided_and_what_would_change_it(found, reason, said, change):
    assert found.reason == reason
    assert re.search(said, found.verdict), found.verdict
    assert re.search(change, found.what_would_change), found.what_would_change


def test_the_verdict_names_resource_forecaster_lead_quantile_and_one_replica_less():
    found = last(WARM, "decode")
    smaller = found.counterfactuals[0]

    assert "binds" in found.verdict
    assert f"{found.forecast.lead_s:.0f} s ahead" in found.verdict
    assert f"by the forecaster {found.forecast.forecaster}" in found.verdict
    assert f"{found.forecast.upper_per_s:,.0f} at the 90% quantile" in found.verdict
    assert f"tokens/s now (smoothed over {TIER.level_window_s:.0f} s)" in found.verdict
    assert f"With {found.after - 1} the model expects: {smaller.words}." in found.verdict


@pytest.mark.parametrize("pool", ["prefill", "decode"])
@pytest.mark.parametrize(
    ("loads", "proven"), [([Load()] * 2, False), ([Load()] * 6, False), (WARM, True)]
)
def test_what_the_model_expects_is_not_said_to_hold_before_it_is_proven(pool, loads, proven):
    found = last(loads, pool)
    said = [found.verdict, *(each.words for each in found.counterfactuals)]

    assert found.counterfactuals
    assert all(each.is_proven is proven for each in found.counterfactuals)
    assert proven or not any("SLO holds" in words or "not hold" in words for words in said)
    assert proven or all(
        "by the prior" in each.words or "not proven yet" in each.words
        for each in found.counterfactuals
    )


def measured(gap_s, share):
    (*_, made) = recorded_run(WARM)
    newest = made.newest
    assert newest.router is not None
    samples = tuple(
        dataclasses.replace(
            each,
            itl_mean_s=dataclasses.replace(each.itl_mean_s, value=gap_s),
            tpot_within_slo_ratio=dataclasses.replace(each.tpot_within_slo_ratio, value=share),
        )
        for each in newest.samples
    )
    router = dataclasses.replace(
        newest.router,
        tpot_within_slo_ratio=dataclasses.replace(newest.router.tpot_within_slo_ratio, value=None),
    )
    seen = dataclasses.replace(newest, samples=samples, router=router)
    return explain(
        dataclasses.replace(made, observations=(*made.observations[:-1], seen)), TIER, "decode"
    )


@pytest.mark.parametrize(
    ("gap_s", "share", "said"),
    [
        (0.046, 0.5, "Measured now: 46.0 ms mean gap between tokens, 50.0% within 50 ms."),
        (0.046, None, "Measured now: 46.0 ms mean gap between tokens."),
        (None, 0.5, "Measured now: 50.0% within 50 ms."),
        (None, None, None),
    ],
)
def test_what_is_measured_stands_beside_what_the_model_expects(gap_s, share, said):
    verdict = measured(gap_s, share).verdict

    assert said is None or said in verdict
    assert ("Measured now" in verdict) is (said is not None)
    assert "the model expects: " in verdict


def test_more_than_rounding_up_is_said_to_be_for_prompts_on_time():
    found = last([Load(scale=0.36)] * 40)
    (need,) = (each for each in found.needs if each.binds)

    assert need.replicas > math.ceil(need.replicas_exact)
    assert f"is {need.replicas_exact:.2f}, and {need.replicas} replicas keep 99%" in found.verdict


def test_exactly_the_largest_need_binds():
    found = last(WARM, "decode")
    largest = max(found.needs, key=lambda need: (need.replicas, need.replicas_exact))

    assert [need for need in found.needs if need.binds] == [largest]


def test_every_step_is_told_in_order_and_leads_from_before_to_after():
    found = last([*WARM, *[Load(scale=0.4)] * 6])

    assert [step.name for step in found.steps] == ["follow_need", "slow_down"]
    assert found.steps[0].before == found.before
    assert found.steps[-1].after == found.after
    for one, two in zip(found.steps, found.steps[1:], strict=False):
        assert one.after == two.before


def test_inputs_carry_value_unit_age_and_coverage_and_unknown_stays_unknown():
    known = {row.name: row for row in last(WARM).inputs}
    blind = {row.name: row for row in last([*WARM, Load(blind=(PREFILL,))]).inputs}
    name = "prefill.computed_prompt_tokens_per_s"

    assert (known[name].value, known[name].unit) == (50_000.0, "tokens/s")
    assert (known[name].age_s, known[name].coverage_ratio) == (0.0, 1.0)
    assert blind[name].value is None
    assert blind[name].coverage_ratio == 0.0
    assert known["router.ttft_within_slo_ratio"].value == 0.995
    assert known["prefill.ready_replicas"].unit == "replicas"
    assert not any(row.name.startswith("decode.") for row in known.values())


def test_every_input_has_a_unit():
    for pool in ("prefill", "decode"):
        assert [row.name for row in last(WARM, pool).inputs if not row.unit] == []


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("output_tokens_per_s", "tokens/s"),
        ("kv_used_tokens", "tokens"),
        ("input_tokens_mean", "tokens"),
        ("hottest_kv_used_ratio", "ratio"),
        ("queue_time_mean_s", "s"),
        ("kv_transfer_bytes_per_s", "bytes/s"),
        ("ready_replicas", "replicas"),
        ("waiting_requests", "requests"),
        ("whatever", ""),
    ],
)
def test_a_unit_is_read_from_a_name(name, unit):
    assert unit_of(name) == unit


def test_a_pool_that_is_not_there_has_no_explanation():
    (made,) = recorded_run([Load()])

    assert explain(made, TIER, "nobody") is None
    assert explain(made, TIER, DECODE.name) is not None
