"""A slow KV link is said in words and sizes nothing; what is not known is not said."""

from __future__ import annotations

import dataclasses

import pytest

from autoscaler.link import (
    LEAST_TRANSFERS,
    LINK_WINDOW_S,
    USUAL_AFTER_WINDOWS,
    FailedPulls,
    LinkModel,
    earlier_link,
    failed_transfers_words,
    learn_link,
    link_reading,
    point_of,
    slow_link,
)
from autoscaler.plan import plan
from autoscaler.state import LearnedState
from autoscaler.testing import TIER, Load, decision_in, recorded_run
from autoscaler.types import Bottleneck, Demand, TierSettings
from serving.testing import DECODE, make_pool_state, make_sample
from serving.types import Measurement, PoolId, PoolState

MB = 1e6
DECLARED = 450.0 * MB


def seen(at_s, *, transfers=10.0, each_bytes=16.0 * MB, each_s=0.036, coverage=1.0, replicas=2):
    """Five seconds of transfers; 16 MB in 36 ms are 0.44 GB/s."""
    sample = make_sample(
        DECODE,
        at_s=at_s,
        replicas=replicas,
        kv_transfer_bytes_per_s=transfers * each_bytes / 5.0 / coverage,
        kv_transfer_time_mean_s=each_s,
    )
    return dataclasses.replace(
        sample,
        window_s=5.0,
        replicas_reporting=round(replicas * coverage),
        kv_transfer_bytes_per_s=Measurement(sample.kv_transfer_bytes_per_s.value, 0.0, coverage),
        counted=(("kv_transfer_time_mean_s", transfers),),
    )


def after(*samples, declared=DECLARED):
    model = LinkModel()
    for index, sample in enumerate(samples):
        model = learn_link(model, sample, at_s=5.0 * (index + 1), declared_bytes_per_s=declared)
    return model, 5.0 * len(samples)


def is_slow(*samples, declared=DECLARED):
    model, now_s = after(*samples, declared=declared)
    return slow_link(model, now_s=now_s, declared_bytes_per_s=declared) is not None


@pytest.mark.parametrize(
    ("each_s", "slow"),
    [
        (0.036, False),  # 0.44 GB/s of 0.45
        (0.070, False),  # 0.23 GB/s: just over half
        (0.080, True),  # 0.20 GB/s: under half, and more than the latency of each explains
        (0.145, True),  # 0.11 GB/s: a link of 1 Gbit/s
    ],
)
def test_half_of_what_is_declared_is_the_line(each_s, slow):
    assert is_slow(seen(5.0, each_s=each_s)) is slow


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(seen(5.0, transfers=LEAST_TRANSFERS - 1, each_s=1.0), id="too-few"),
        pytest.param(make_sample(DECODE, at_s=5.0, replicas=2), id="nothing-known"),
        pytest.param(
            dataclasses.replace(seen(5.0, each_s=1.0), counted=()), id="how-many-not-known"
        ),
        pytest.param(
            dataclasses.replace(seen(5.0, each_s=1.0), kv_transfer_time_mean_s=Measurement()),
            id="times-not-known",
        ),
        pytest.param(seen(5.0, each_bytes=0.0, each_s=1.0), id="no-bytes"),
        pytest.param(seen(5.0, each_bytes=10e3, each_s=0.004), id="small-ones-are-latency"),
    ],
)
def test_what_cannot_be_told_is_not_said(sample):
    assert not is_slow(sample)


def test_the_first_slow_transfers_after_fast_ones_are_seen_within_fifteen_seconds():
    fast = [seen(5.0 * k) for k in range(1, 7)]
    slow = [seen(5.0 * k, each_s=0.145, transfers=4.0) for k in range(7, 10)]

    assert not is_slow(*fast)
    assert is_slow(*fast, *slow)


def test_it_is_said_no_more_once_transfers_are_fast_again():
    slow = [seen(5.0, each_s=0.145)]
    fast = [seen(5.0) for _ in range(3)]

    assert is_slow(*slow)
    assert not is_slow(*slow, *fast)


def test_nothing_is_said_of_transfers_that_are_over():
    model, now_s = after(seen(5.0, each_s=0.145))

    assert slow_link(model, now_s=now_s + 16.0, declared_bytes_per_s=DECLARED) is None


def test_transfers_that_share_a_link_are_not_slow_for_that():
    # 40 transfers of 0.25 s in 5 s of 2 replicas: one at once on each, and 64 MB/s are slow;
    # of 200 there are five at once, which share 320 MB/s
    crowd = seen(5.0, transfers=40.0, each_s=0.25)

    model, now_s = after(crowd)
    found = link_reading(model, now_s=now_s)

    assert found is not None
    assert found.at_once == pytest.approx(40.0 * 0.25 / (5.0 * 2))
    assert is_slow(crowd)
    assert not is_slow(seen(5.0, transfers=200.0, each_s=0.25))


def test_bytes_that_were_scaled_up_to_silent_replicas_are_scaled_back():
    point = point_of(seen(5.0, coverage=0.5), at_s=5.0)

    assert point is not None
    assert point.sent_bytes / point.spent_s == pytest.approx(16.0 * MB / 0.036)


def test_without_a_declared_rate_what_is_usual_is_the_measure():
    usual = [seen(5.0) for _ in range(USUAL_AFTER_WINDOWS)]
    slow = [seen(5.0, each_s=0.145) for _ in range(40)]

    assert not is_slow(*slow, declared=None)  # nothing is usual yet, so this becomes it
    assert not is_slow(*usual[:-4], *slow[:3], declared=None)
    assert is_slow(*usual, *slow[:3], declared=None)
    assert is_slow(*usual, *slow, declared=None), "what is slow does not become usual"


def test_a_clock_that_goes_back_takes_later_transfers_with_it():
    model, _ = after(seen(5.0), seen(10.0))

    assert [point.at_s for point in earlier_link(model, 5.0).points] == [5.0]


def settings_with(rate) -> TierSettings:
    return dataclasses.replace(TIER, kv_bytes_per_s_per_replica=rate)


def state_with(
    model, *, kv_bytes_per_s=None
) -> tuple[LearnedState, TierSettings, dict[PoolId, PoolState]]:
    """The state of a tier that has run for a while, with this link to decode."""
    found = []
    settings = settings_with(DECLARED)
    recorded_run([Load()] * 6, settings=settings, on_tick=lambda _, state: found.append(state))
    state = found[-1]
    now_s = state.now_s
    shifted = tuple(dataclasses.replace(p, at_s=now_s) for p in model.points)
    link = dataclasses.replace(model, points=shifted)
    demand = dataclasses.replace(state.demand, kv_bytes_per_s=kv_bytes_per_s)
    pools = tuple(
        dataclasses.replace(known, link=link) if p.pool == DECODE else known
        for known, p in zip(state.pools, settings.pools, strict=True)
    )
    sizes = {p.pool: make_pool_state(p.pool, at_s=now_s, desired=8) for p in settings.pools}
    return dataclasses.replace(state, pools=pools, demand=demand), settings, sizes


def decode_of(made):
    return next(d for d in made.decisions if d.pool == DECODE)


def test_a_slow_link_is_a_problem_of_the_plan_and_changes_no_size():
    slow, _ = after(seen(5.0, each_s=0.145))
    state, settings, sizes = state_with(slow)
    healthy, _, _ = state_with(LinkModel())

    made = plan(state, sizes, settings, now_s=state.now_s)
    without = plan(healthy, sizes, settings, now_s=state.now_s)

    words = (
        "KV transfers to decode run at 0.11 GB/s, 0.45 GB/s declared: the link between prefill "
        "and decode is slow, which more decode replicas do not mend"
    )
    assert made.problems == (words,)
    assert decode_of(made).problems == (words,)
    assert without.problems == ()
    assert [d.replicas for d in made.decisions] == [d.replicas for d in without.decisions]


@pytest.mark.parametrize(
    ("failed_per_s", "computed_per_s", "words"),
    [
        (None, None, None),
        (0.0, 900.0, None),
        (0.05, 900.0, None),  # a fraction of one, which scaling up to silent replicas can make
        (
            0.4,
            0.0,
            "2 KV transfers to decode failed within the last 15 s: prefill that had the KV has "
            "died, or the link is broken",
        ),
        (
            0.4,
            300.0,
            "2 KV transfers to decode failed within the last 15 s: prefill that had the KV has "
            "died, or the link is broken; decode computed 1,500 prompt tokens itself",
        ),
    ],
)
def test_failed_transfers_are_told_with_what_decode_computed_in_their_place(
    failed_per_s, computed_per_s, words
):
    sample = make_sample(
        DECODE,
        at_s=5.0,
        kv_transfer_failures_per_s=failed_per_s,
        computed_prompt_tokens_per_s=computed_per_s,
    )

    sample = dataclasses.replace(sample, window_s=5.0)
    quiet = make_sample(DECODE, at_s=10.0, kv_transfer_failures_per_s=0.0)
    model = learn_link(LinkModel(), sample, at_s=5.0, declared_bytes_per_s=None)
    later = learn_link(model, quiet, at_s=10.0, declared_bytes_per_s=None)

    assert failed_transfers_words(model, "decode", now_s=5.0) == words
    assert failed_transfers_words(later, "decode", now_s=10.0) == words  # the tick's last look
    assert failed_transfers_words(later, "decode", now_s=20.0) is None


def test_failed_transfers_are_a_problem_of_the_plan_while_they_are_news():
    state, settings, sizes = state_with(LinkModel())
    assert state.now_s is not None
    failed = LinkModel(failed=(FailedPulls(at_s=state.now_s, transfers=1, computed_tokens=0),))
    told, settings, sizes = state_with(failed)

    (words,) = plan(told, sizes, settings, now_s=state.now_s).problems
    later = plan(told, sizes, settings, now_s=state.now_s + LINK_WINDOW_S).problems
    assert "KV transfers to decode failed" in words
    assert not any("failed" in problem for problem in later)


def test_a_network_that_binds_is_said_and_sizes_nothing():
    # 8 ready replicas carry 3.6 GB/s as declared; 9 GB/s come, 20 replicas' worth
    state, settings, sizes = state_with(LinkModel(), kv_bytes_per_s=9e9)
    known, _, _ = state_with(LinkModel())

    made = decode_of(plan(state, sizes, settings, now_s=state.now_s))
    without = decode_of(plan(known, sizes, settings, now_s=state.now_s))

    (network,) = (n for n in made.needs if n.bottleneck is Bottleneck.NETWORK)
    assert network.replicas >= 20
    assert made.replicas == without.replicas
    assert made.wanted_replicas == without.wanted_replicas
    assert "the network binds at decode" in made.problems[0]
    assert "more decode replicas are no answer" in made.problems[0]
    assert made.counterfactuals == without.counterfactuals


@pytest.mark.parametrize(
    ("rate", "demand"),
    [
        (None, Demand(output_tokens_per_s=10.0, kv_bytes_per_s=1e9)),
        (DECLARED, Demand(output_tokens_per_s=10.0)),
        (DECLARED, Demand(kv_bytes_per_s=1e9)),
    ],
)
def test_without_a_rate_or_a_demand_there_is_no_network_need(rate, demand):
    state, _, sizes = state_with(LinkModel())
    state = dataclasses.replace(
        state,
        demand=dataclasses.replace(demand, input_tokens_mean=1111.0, output_tokens_mean=222.0),
    )

    made = plan(state, sizes, settings_with(rate), now_s=state.now_s)

    assert all(n.bottleneck is not Bottleneck.NETWORK for n in decode_of(made).needs)


def test_the_load_of_other_tests_has_no_problem_with_its_link():
    last = recorded_run([Load()] * 3)[-1]

    assert decision_in(last, "decode").problems == ()
