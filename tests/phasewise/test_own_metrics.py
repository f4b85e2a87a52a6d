"""Our own page: the catalogue's names, what is known, and nothing that is not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from autoscaler.tick import Phasewise
from autoscaler.types import (
    Bottleneck,
    CapacityPrior,
    Decision,
    Demand,
    Forecast,
    KindLead,
    Lead,
    Need,
    Plan,
    PoolSettings,
    Reason,
    TierSettings,
)
from phasewise.metering import Part, TickDurations
from phasewise.own_metrics import OwnMetrics
from serving.own import OWN, OWN_BY_NAME
from serving.recorded import RECORDED_BY_NAME
from serving.series import SPEC_OF_SAMPLE
from serving.testing import DECODE, PREFILL, make_observation, make_pool_state, make_sample
from serving.types import Measurement, Observation, RouterSample, Slo, StartKind, StartStage

SLO = Slo(ttft_s=2.0, itl_s=0.05, attainment_ratio=0.95)
DURATIONS = TickDurations(
    observe=(Part(start_s=0.0, duration_s=0.02), Part(start_s=5.0, duration_s=0.3)),
    plan=Part(start_s=5.4, duration_s=0.004),
    act=Part(start_s=5.5, duration_s=100.0),
)
Page = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(metrics: OwnMetrics) -> Page:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.page().decode())
        for sample in family.samples
    }


def value(page: Page, name: str, **labels: str) -> float | None:
    return page.get((name, frozenset(labels.items())))


def observation(at_s: float, *, decode_desired: int | None = 4, **values: float) -> Observation:
    rates: dict[str, Any] = {"output_tokens_per_s": 900.0, "kv_used_tokens": 5e4, **values}
    return make_observation(
        make_sample(PREFILL, at_s=at_s, computed_prompt_tokens_per_s=8000.0),
        make_sample(DECODE, at_s=at_s, **rates),
        at_s=at_s,
        pools=(
            make_pool_state(PREFILL, at_s=at_s, desired=6),
            make_pool_state(DECODE, at_s=at_s, desired=decode_desired),
        ),
    )


def decision(**changes: Any) -> Decision:
    plain = Decision(
        pool=DECODE, replicas=5, hold=False, reason=Reason.DEMAND_ROSE, words="more is asked"
    )
    return replace(plain, **changes)


def plan(*decisions: Decision, at_s: float = 15.0, **changes: Any) -> Plan:
    made = Plan(tier="demo", epoch=1, at_s=at_s, policy="test", decisions=decisions)
    return replace(made, **changes)


def metrics(**options: bool) -> OwnMetrics:
    return OwnMetrics(version="1.2.3", registry=CollectorRegistry(), **options)


def tick(
    own: OwnMetrics, made: Plan, *seen: Observation, durations: TickDurations = DURATIONS
) -> Page:
    own.observe_tick(made, seen or (observation(made.at_s),), None, durations, slo=SLO)
    return read(own)


def test_a_fresh_page_says_only_which_version_runs() -> None:
    assert read(metrics()) == {("phasewise_build_info", frozenset({("version", "1.2.3")})): 1.0}


def test_a_decision_is_told_with_its_need_forecast_and_reason() -> None:
    forecast = Forecast(
        made_at_s=15.0,
        lead_s=60.0,
        level_per_s=900.0,
        expected_per_s=1000.0,
        upper_per_s=1200.0,
        upper_ratio=0.9,
        forecaster="last",
        history_s=300.0,
    )
    needs = (
        Need(
            bottleneck=Bottleneck.COMPUTE,
            replicas_exact=4.4,
            replicas=5,
            demand_per_s=1200.0,
            replica_capacity_per_s=270.0,
        ),
        Need(
            bottleneck=Bottleneck.KV_CACHE,
            replicas_exact=2.5,
            replicas=3,
            demand_per_s=1200.0,
            replica_capacity_per_s=480.0,
        ),
    )
    made = plan(
        decision(needs=needs, forecast=forecast, wanted_replicas=5, inputs_age_s=0.0),
        demand=Demand(output_tokens_per_s=910.0),
        demand_ratio=0.7,
    )
    page = tick(metrics(), made)
    pool = {"tier": "demo", "pool": "decode", "phase": "decode"}

    assert value(page, "phasewise_desired_replicas", **pool) == 4
    assert value(page, "phasewise_target_replicas", **pool) == 5
    assert value(page, "phasewise_need_replicas", **pool, resource="compute") == 4.4
    assert value(page, "phasewise_need_replicas", **pool, resource="kv_cache") == 2.5
    assert value(page, "phasewise_capacity_tokens_per_second", **pool) == 270.0
    assert value(page, "phasewise_forecast_tokens_per_second", **pool, bound="upper") == 1200.0
    assert value(page, "phasewise_demand_tokens_per_second", tier="demo", phase="decode") == 910.0
    assert value(page, "phasewise_demand_tokens_per_second", tier="demo", phase="prefill") is None
    assert value(page, "phasewise_decision_info", **pool, reason="DemandRose") == 1
    assert value(page, "phasewise_replica_ratio", tier="demo") == 1.5
    assert value(page, "phasewise_demand_ratio", tier="demo") == 0.7
    assert value(page, "phasewise_source_age_seconds", tier="demo", source="decode") == 0.0
    assert value(page, "phasewise_slo_seconds", tier="demo", kind="itl") == 0.05
    assert value(page, "phasewise_decisions_total", **pool, action="up", reason="DemandRose") == 1


def test_what_is_not_known_is_absent_and_never_zero_or_nan() -> None:
    blind = Observation(at_s=15.0)
    unknown = decision(replicas=None, hold=True, reason=Reason.POOL_STATE_UNKNOWN)
    odd = decision(pool=PREFILL, replicas=2, inputs_age_s=float("nan"))
    page = tick(metrics(), plan(unknown, odd, demand_ratio=float("inf")), blind)
    names = {name for name, _ in page}

    assert not names & {
        *("phasewise_replicas", "phasewise_desired_replicas", "phasewise_replica_ratio"),
        *("phasewise_demand_ratio", "phasewise_source_age_seconds", "phasewise_kv_used_tokens"),
        *("phasewise_wanted_replicas", "phasewise_source_coverage_ratio"),
    }
    assert b"nan" not in metrics().page().lower()
    assert [key for key, number in page.items() if number != number] == []
    target = {labels for name, labels in page if name == "phasewise_target_replicas"}
    assert len(target) == 1


def test_a_label_set_ends_with_what_it_is_of() -> None:
    own = metrics()
    first = tick(own, plan(decision(reason=Reason.DEMAND_ROSE)))
    both = tick(own, plan(decision(reason=Reason.DEMAND_FELL), at_s=30.0))
    reasons = [
        {dict(labels)["reason"] for name, labels in page if name == "phasewise_decision_info"}
        for page in (first, both)
    ]

    assert reasons == [{"DemandRose"}, {"DemandFell"}]
    assert len([1 for name, _ in both if name == "phasewise_decisions_total"]) == 2


def test_a_hold_is_timed_from_its_first_tick_and_ends_with_it() -> None:
    own, pool = metrics(), {"tier": "demo", "pool": "decode", "phase": "decode"}
    held = decision(replicas=4, hold=True, reason=Reason.SCALE_DOWN_STABILIZED)
    seconds = [
        value(tick(own, plan(made, at_s=at_s)), "phasewise_hold_seconds", **pool)
        for at_s, made in (
            (15.0, held),
            (30.0, held),
            (45.0, replace(held, reason=Reason.COVERAGE_LOW)),
            (60.0, decision()),
            (75.0, replace(held, reason=Reason.WITHIN_NEED)),
            (90.0, held),
        )
    ]

    assert seconds == [0.0, 15.0, 30.0, None, None, 0.0]


def test_durations_are_cumulative_histograms_of_real_time() -> None:
    own = metrics()
    tick(own, plan(decision()))
    page = tick(own, plan(decision(), at_s=30.0))
    name = "phasewise_tick_duration_seconds"
    labels = {"tier": "demo", "part": "act"}

    assert value(page, "phasewise_scrape_duration_seconds_count", tier="demo") == 4
    assert value(page, "phasewise_scrape_duration_seconds_bucket", tier="demo", le="0.025") == 2
    assert value(page, f"{name}_sum", tier="demo", part="observe") == pytest.approx(0.64)
    assert value(page, f"{name}_bucket", **labels, le="15.0") == 0
    assert value(page, f"{name}_bucket", **labels, le="+Inf") == 2


def test_recorded_series_are_there_only_where_phasewise_supplies_them() -> None:
    router = RouterSample(
        source="epp",
        window_start_s=10.0,
        window_s=5.0,
        ttft_mean_s=Measurement(0.5, 0.0, 1.0),
        counted=(("ttft_mean_s", 10.0),),
    )
    seen = replace(observation(15.0), router=router)
    silent = tick(metrics(), plan(decision()), seen)
    page = tick(metrics(supplies_recorded=True), plan(decision()), seen)
    pool = {"tier": "demo", "pool": "decode", "phase": "decode"}

    assert {name for name, _ in silent} & set(RECORDED_BY_NAME) == set()
    assert value(page, "phase:output_tokens:rate1m", **pool) == 900.0
    assert value(page, "phase:user_ttft_seconds:mean1m", tier="demo") == 0.5


LEAD = Lead(
    counted=StartKind.WARM,
    p50_s=31.0,
    p95_s=60.0,
    kinds=(
        KindLead(
            kind=StartKind.WARM,
            starts=4,
            p50_s=31.0,
            p95_s=60.0,
            stages_s=((StartStage.WEIGHTS, 2.0),),
        ),
    ),
)


def test_the_lead_of_each_kind_is_there_once_it_was_seen() -> None:
    page = tick(metrics(), plan(replace(decision(), lead=LEAD)), observation(15.0))
    warm = {"tier": "demo", "pool": "decode", "phase": "decode", "kind": "warm"}

    assert value(page, "phasewise_start_stage_seconds", **warm, stage="weights") == 2.0
    assert value(page, "phasewise_lead_by_kind_seconds", **warm, share="0.5") == 31.0
    assert value(page, "phasewise_lead_by_kind_seconds", **warm, share="0.95") == 60.0
    assert sum(1 for name, _ in page if name == "phasewise_start_stage_seconds") == 1


def test_every_line_is_of_the_catalogue_and_every_row_can_be_on_a_page() -> None:
    """With our own policy's state, so that leads are there too."""
    policy = Phasewise(
        TierSettings(
            name="demo",
            slo=SLO,
            pools=tuple(
                PoolSettings(pool=pool, min_replicas=1, max_replicas=9, prior=CapacityPrior())
                for pool in (PREFILL, DECODE)
            ),
        )
    )
    own = metrics(supplies_recorded=True)
    state = policy.start()
    for number in range(60):
        seen = observation(5.0 * number, running_requests=20.0, kv_capacity_tokens=1e6)
        sample = seen.samples[0]
        rate = Measurement(4.0, 0.0, 1.0)
        router = RouterSample(
            source="epp",
            window_start_s=seen.at_s - 5.0,
            window_s=5.0,
            requests_per_s=rate,
            finished_requests_per_s=rate,
            input_tokens_mean=Measurement(2000.0, 0.0, 1.0),
            output_tokens_mean=Measurement(200.0, 0.0, 1.0),
        )
        seen = replace(seen, samples=(sample, *seen.samples[1:]), router=router)
        state, made = policy.tick(state, [seen])
        own.observe_tick(made, (seen,), state, DURATIONS, slo=SLO)
    held = decision(replicas=4, hold=True, reason=Reason.COVERAGE_LOW)
    own.observe_tick(
        replace(
            made,
            decisions=(
                made.decisions[0],
                replace(made.decisions[1], hold=True, reason=held.reason, lead=LEAD),
            ),
        ),
        (seen,),
        state,
        DURATIONS,
        slo=SLO,
    )
    own.observe_request_part("queue", model="m", pool="prefill", seconds=0.1)
    page = read(own)
    listed = {SPEC_OF_SAMPLE[name].name for name, _ in page}

    for name, labels in page:
        spec = SPEC_OF_SAMPLE[name]
        assert {key for key, _ in labels} - {"le"} == set(spec.labels), name
    assert set(OWN_BY_NAME) - listed == set()
    text = own.page().decode()
    for spec in OWN:
        family = spec.name.removesuffix("_total") if spec.type.value == "counter" else spec.name
        assert re.search(rf"^# TYPE {family}(_total)? {spec.type.value}$", text, re.MULTILINE)
