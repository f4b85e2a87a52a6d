import dataclasses

import pytest

from autoscaler.sources import Freshness
from autoscaler.testing import TIER, Load, decision_in, recorded_run, state_in
from autoscaler.types import Reason
from autoscaler.view import decisions, view
from serving.testing import DECODE, PREFILL
from serving.types import Measurement, Override, OverrideKind

WARM = [Load()] * 60


def seen(loads, **changes):
    return view(recorded_run(loads), TIER, mode="act", **changes)


def source(found, name):
    return next(each for each in found.sources if each.name == name)


def test_all_histories_are_as_long_as_their_times():
    found = seen([Load()] * 7).history
    lists = [
        *(getattr(p, f.name) for p in found.pools.values() for f in dataclasses.fields(p)[1:]),
        *(
            getattr(r, f.name)
            for r in (found.demand, found.provided)
            for f in dataclasses.fields(r)
        ),
        *(getattr(b, f.name) for b in found.forecast.values() for f in dataclasses.fields(b)),
        found.demand_ratio,
        found.replica_ratio,
        found.ttft_within_slo_ratio,
        found.tpot_within_slo_ratio,
    ]

    assert len(found.at_s) == 7
    assert [len(each) for each in lists] == [7] * len(lists)


def test_a_pool_now_is_what_its_tick_says():
    ticks = recorded_run(WARM)
    found = view(ticks, TIER, mode="advise")
    decision, state = decision_in(ticks[-1], "decode"), state_in(ticks[-1], "decode")
    pool = next(p for p in found.pools if p.name == "decode")

    assert (found.mode, found.epoch, found.at_s) == ("advise", 60, 900.0)
    assert (pool.desired, pool.ready) == (state.desired_replicas, state.ready_replicas)
    assert (pool.decided, pool.wanted) == (decision.replicas, decision.wanted_replicas)
    assert (pool.reason, pool.hold, pool.binds) == (decision.reason, decision.hold, "compute")
    assert (pool.min, pool.max) == (2, 50)
    assert found.fan["prefill"] == decision_in(ticks[-1], "prefill").forecast


def test_provided_is_ready_replicas_times_what_one_carries():
    ticks = recorded_run(WARM)
    found = view(ticks, TIER, mode="act").history.provided
    for index in (0, 30, 59):
        decision = decision_in(ticks[index], "decode")
        one = min(need.replica_capacity_per_s for need in decision.needs)
        ready = state_in(ticks[index], "decode").ready_replicas

        assert ready is not None
        assert found.output_tokens_per_s[index] == ready * one


def test_what_is_not_known_is_none_and_never_zero():
    found = seen([*WARM, *[Load(blind=(PREFILL,), lost=(DECODE,), router=False)] * 20])
    history = found.history

    assert history.demand.prefill_tokens_per_s[-1] is None
    assert history.provided.prefill_tokens_per_s[-1] is None
    assert history.forecast["prefill"].upper_per_s[-1] is None
    assert history.pools["decode"].ready[-1] is None
    assert history.replica_ratio[-1] is None
    assert history.demand_ratio[-1] is None
    assert history.ttft_within_slo_ratio[-1] is None
    assert found.fan["prefill"] is None


def test_a_share_within_the_target_is_weighted_by_requests_over_the_whole_tick():
    (made,) = recorded_run([Load()])

    known = made.newest.router
    assert known is not None

    def router(ratio, finished):
        return dataclasses.replace(
            known,
            ttft_within_slo_ratio=Measurement(ratio, 0.0, 1.0),
            finished_requests_per_s=Measurement(finished, 0.0, 1.0),
        )

    routers = [router(1.0, 30.0), router(0.5, 10.0), router(None, 50.0)]
    tick = dataclasses.replace(
        made,
        observations=tuple(
            dataclasses.replace(o, router=r)
            for o, r in zip(made.observations, routers, strict=True)
        ),
    )

    # (30 * 1 + 10 * 0.5) / 40
    assert view([tick], TIER, mode="act").history.ttft_within_slo_ratio == (0.875,)


def test_between_two_buckets_the_unsure_windows_of_a_tick_are_not_left_out():
    (made,) = recorded_run([Load()])
    name = "ttft_within_slo_ratio"
    limits = [(1.0, 1.0), (1.0, 1.0), (0.5, 1.0)]

    def share(limits):
        routers = (
            dataclasses.replace(
                o.router,
                ttft_within_slo_ratio=Measurement(least if least == most else None, 0.0, 1.0),
                counted=((name, 10.0),),
                between=((name, least, most),),
            )
            for o, (least, most) in zip(made.observations, limits, strict=True)
        )
        seen_so = tuple(
            dataclasses.replace(o, router=r)
            for o, r in zip(made.observations, routers, strict=True)
        )
        tick = dataclasses.replace(made, observations=seen_so)
        return view([tick], TIER, mode="act").history.ttft_within_slo_ratio[0]

    assert share(limits) is None
    assert share([*limits[:2], (0.97, 1.0)]) == pytest.approx(0.99)


@pytest.mark.parametrize(
    ("front", "between", "decode", "share"),
    [
        pytest.param(0.9, None, 0.5, 0.9, id="the-front-end-knows-exactly"),
        pytest.param(None, None, 0.75, 0.75, id="decode-knows"),
        pytest.param(None, (0.0, 1.0), 0.75, 0.75, id="decode-knows-what-is-far-apart"),
        pytest.param(0.98, (0.98, 1.0), 0.995, 0.995, id="exact-is-better-than-at-least"),
        pytest.param(0.98, (0.98, 1.0), None, 0.98, id="at-least-is-better-than-nothing"),
        pytest.param(None, (0.0, 1.0), None, None, id="nobody-knows"),
        pytest.param(None, None, None, None, id="nothing-ended"),
    ],
)
def test_a_gap_s_share_is_the_front_end_s_or_decode_s_or_not_known(front, between, decode, share):
    (made,) = recorded_run([Load()])
    name = "tpot_within_slo_ratio"

    def known(value):
        return Measurement(value, 0.0, 1.0)

    tick = dataclasses.replace(
        made,
        observations=tuple(
            dataclasses.replace(
                o,
                router=dataclasses.replace(
                    o.router,
                    tpot_within_slo_ratio=known(front),
                    counted=((name, 10.0),),
                    between=() if between is None else ((name, *between),),
                ),
                samples=tuple(
                    dataclasses.replace(s, tpot_within_slo_ratio=known(decode))
                    if s.pool == DECODE
                    else s
                    for s in o.samples
                ),
            )
            for o in made.observations
        ),
    )

    (found,) = view([tick], TIER, mode="act").history.tpot_within_slo_ratio
    assert found == (share and pytest.approx(share))


def test_decisions_are_newest_first_and_equal_holds_are_one():
    ticks = recorded_run([*WARM, *[Load(scale=0.4)] * 6])
    newest = next(d for d in decisions(ticks) if d.pool == "prefill")

    assert newest.reason == Reason.SCALE_DOWN_STABILIZED
    assert newest.before == newest.after
    assert newest.ticks > 1
    assert newest.at_s == ticks[-1].at_s
    assert newest.since_s == newest.at_s - 15.0 * (newest.ticks - 1)
    times = [d.at_s for d in decisions(ticks)]
    assert times == sorted(times, reverse=True)


def test_changes_are_never_folded_and_what_is_enough_is_not_told():
    rising = [Load(scale=1.0 + 0.5 * k) for k in range(6)]
    ticks = recorded_run([*WARM, *rising])
    told = [d for d in decisions(ticks, most=1000) if d.before != d.after]
    changes = [
        (t.epoch, d.pool.name)
        for t in ticks
        for d in t.plan.decisions
        if d.replicas != state_in(t, d.pool.name).desired_replicas
    ]

    assert sorted((d.epoch, d.pool) for d in told) == sorted(changes)
    assert all(d.ticks == 1 for d in told)
    assert not any(d.reason == Reason.WITHIN_NEED and d.before == d.after for d in decisions(ticks))


def test_no_more_decisions_than_asked_for():
    ticks = recorded_run([Load(scale=1.0 + 3.0 * (k % 2)) for k in range(40)])

    assert len(decisions(ticks, most=5)) == 5


@pytest.mark.parametrize(
    ("loads", "name", "state"),
    [
        pytest.param([Load()], "prefill", Freshness.FRESH, id="pool-fresh"),
        pytest.param(
            [Load(), *[Load(blind=(PREFILL,))] * 3], "prefill", Freshness.SILENT, id="pool-silent"
        ),
        pytest.param([Load()], "router", Freshness.FRESH, id="router-fresh"),
        pytest.param(
            [Load(), *[Load(router=False)] * 3], "router", Freshness.SILENT, id="router-silent"
        ),
        pytest.param([Load(router=False)], "router", Freshness.UNKNOWN, id="router-never"),
        pytest.param([Load()], "discovery", Freshness.FRESH, id="discovery-fresh"),
        pytest.param(
            [Load(), *[Load(lost=(DECODE,))] * 3],
            "scale targets",
            Freshness.SILENT,
            id="scale-targets-silent",
        ),
    ],
)
def test_each_source_says_how_fresh_it_is(loads, name, state):
    found = source(seen(loads), name)

    assert found.state is state
    assert found.words
    if state is Freshness.SILENT:
        assert found.age_s is not None
        assert found.age_s > TIER.fresh_s


def test_a_pool_that_reports_in_part_is_stale_once_its_work_is_not_known():
    ticks = recorded_run([Load(), *[Load(blind=(PREFILL,))] * 3])
    newest = ticks[-1].newest
    half = tuple(
        dataclasses.replace(s, replicas_reporting=1) if s.pool == PREFILL else s
        for s in newest.samples
    )
    tick = dataclasses.replace(
        ticks[-1],
        observations=(*ticks[-1].observations[:-1], dataclasses.replace(newest, samples=half)),
    )
    found = source(view([*ticks[:-1], tick], TIER, mode="act"), "prefill")

    assert found.state is Freshness.STALE
    assert found.words.startswith("1 of ")


def test_an_override_is_shown_before_the_next_tick_sees_it_and_not_after_its_time():
    ticks = recorded_run([Load()])

    def shown(until_s):
        word = Override(kind=OverrideKind.PIN, pool="decode", replicas=9, until_s=until_s, by="ann")
        found = view(ticks, TIER, mode="act", overrides=[word])
        return {pool.name: pool.override for pool in found.pools}

    assert shown(100.0)["decode"].replicas == 9
    assert shown(100.0)["prefill"] is None
    assert shown(15.0)["decode"] is None


def test_problems_of_every_source_are_told_once():
    found = seen([Load(), Load(blind=(PREFILL, DECODE))])

    assert found.problems == ("no page answers",)
