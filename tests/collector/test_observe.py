"""The observer: pools of replicas over several steps, with everything that may go wrong in them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.types import PoolSettings
from collector.derive import MEASUREMENTS
from collector.observe import Member, ObserverSettings, ObserverState, step
from phasewise.pool_states import pool_states
from serving.types import (
    HistogramReading,
    Measurement,
    Observation,
    Phase,
    PhaseSample,
    PoolId,
    PoolState,
    ReplicaReading,
    ReplicaState,
    Slo,
)

POOL = PoolId(tier="t", name="decode", phase=Phase.DECODE, variant="v")
READY, STARTING, DRAINING = ReplicaState.READY, ReplicaState.STARTING, ReplicaState.DRAINING
T = 1_000_000.0
SLO = Slo(ttft_s=2.0, itl_s=0.04, attainment_ratio=0.9)


def histogram(count: float, mean: float) -> HistogramReading:
    """All observations in one bucket around their mean."""
    return HistogramReading(
        bounds=(mean / 2, mean * 2), cumulative=(0.0, count), sum=count * mean, count=count
    )


def reading(
    name: str, at_s: float, *, tokens_per_s: float = 100.0, **changes: object
) -> ReplicaReading:
    """A replica that has worked steadily since T - 1000."""
    lived_s = at_s - T + 1_000.0
    tokens, requests = tokens_per_s * lived_s, tokens_per_s * lived_s / 50.0
    plain = ReplicaReading(
        replica=name,
        at_s=at_s,
        process_start_time_s=T - 1_000.0,
        process_cpu_s=0.3 * lived_s,
        running_requests=4.0,
        waiting_requests=1.0,
        deferred_requests=0.0,
        kv_used_ratio=0.25,
        kv_capacity_tokens=1_000.0,
        prompt_tokens=10.0 * tokens,
        computed_prompt_tokens=0.0,
        cached_prompt_tokens=0.0,
        transferred_prompt_tokens=10.0 * tokens,
        output_tokens=tokens,
        finished_requests=requests,
        failed_requests=0.0,
        preemptions=0.0,
        step_tokens=histogram(tokens / 4.0, 4.0),
        ttft=histogram(requests, 0.5),
        itl=histogram(tokens, 0.02),
        tpot=histogram(requests, 0.02),
        queue_time=histogram(requests, 0.2),
        prefill_time=histogram(requests, 0.1),
        decode_time=histogram(requests, 1.0),
        request_prompt_tokens=histogram(requests, 500.0),
        request_output_tokens=histogram(requests, 50.0),
        kv_transfer_time=histogram(requests, 0.05),
        kv_transfer_bytes=histogram(requests, 4e6),
        kv_transfer_failures=0.0,
        kv_expired_requests=0.0,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def pool(ready: int | None, *, draining: int = 0, starting: int = 0) -> PoolState:
    return PoolState(
        pool=POOL,
        observed_at_s=T,
        desired_replicas=ready,
        ready_replicas=ready,
        starting_replicas=starting,
        draining_replicas=draining,
    )


def members(*names: str, **states: ReplicaState) -> dict[str, Member]:
    found = {name: Member(pool="decode", state=READY) for name in names}
    return found | {n: Member(pool="decode", state=state) for n, state in states.items()}


class Tier:
    """Plays steps of 5 s; `see` takes the readings of one step and what discovery says then."""

    def __init__(self) -> None:
        self.state = ObserverState()
        self.now_s = T

    def see(
        self,
        readings: Mapping[str, ReplicaReading],
        there: Mapping[str, Member],
        *,
        ready: int | None = None,
        known_ready: bool = True,
    ) -> PhaseSample:
        counted = sum(1 for member in there.values() if member.state is READY)
        count = (counted if ready is None else ready) if known_ready else None
        self.state, seen = step(
            self.state,
            now_s=self.now_s,
            readings=readings,
            router=None,
            pools=[pool(count)],
            members=there,
            slo=SLO,
        )
        self.now_s += 5.0
        return seen.samples[0]

    def steady(self, *names: str, **tokens_per_s: float) -> PhaseSample:
        speeds = dict.fromkeys(names, 100.0) | tokens_per_s
        there = members(*speeds)
        readings = {n: reading(n, self.now_s, tokens_per_s=v) for n, v in speeds.items()}
        return self.see(readings, there)


def values(sample: PhaseSample) -> dict[str, float | None]:
    return {name: getattr(sample, name).value for name in MEASUREMENTS}


def test_every_measurement_of_a_sample_is_derived() -> None:
    measured = {f.name for f in fields(PhaseSample) if "Measurement" in str(f.type)}

    assert measured == set(MEASUREMENTS)


def test_the_first_step_knows_gauges_and_no_rates() -> None:
    sample = Tier().steady("a", "b")

    assert sample.window_s == 0.0
    assert sample.replicas_reporting == 0
    assert sample.running_requests == Measurement(8.0, 0.0, 1.0)
    assert sample.output_tokens_per_s == Measurement(None, None, 0.0)


def test_the_second_step_knows_everything() -> None:
    tier = Tier()
    tier.steady("a", b=300.0)
    sample = tier.steady("a", b=300.0)

    assert values(sample) == pytest.approx(
        {
            "finished_requests_per_s": 8.0,
            "failed_requests_per_s": 0.0,
            "prompt_tokens_per_s": 4_000.0,
            "computed_prompt_tokens_per_s": 0.0,
            "cached_prompt_tokens_per_s": 0.0,
            "transferred_prompt_tokens_per_s": 4_000.0,
            "output_tokens_per_s": 400.0,
            "preemptions_per_s": 0.0,
            "kv_transfer_failures_per_s": 0.0,
            "kv_expired_requests_per_s": 0.0,
            "running_requests": 8.0,
            "waiting_requests": 2.0,
            "deferred_requests": 0.0,
            "ttft_mean_s": 0.5,
            "itl_mean_s": 0.02,
            "queue_time_mean_s": 0.2,
            "prefill_time_mean_s": 0.1,
            "request_prompt_tokens_mean": 500.0,
            "request_output_tokens_mean": 50.0,
            "kv_transfer_time_mean_s": 0.05,
            "steps_per_s": 100.0,
            "step_tokens_per_s": 400.0,
            "kv_transfer_bytes_per_s": 32e6,
            "kv_used_tokens": 500.0,
            "kv_capacity_tokens": 2_000.0,
            "hottest_running_requests": 4.0,
            "hottest_kv_used_ratio": 0.25,
            "tpot_within_slo_ratio": 1.0,
        }
    )
    assert sample.problems == ()
    assert (sample.window_start_s, sample.window_s) == (T, 5.0)
    assert (sample.replicas_expected, sample.replicas_reporting) == (2, 2)


def gaps(*bounds: float, shares: tuple[float, ...], ended: float) -> HistogramReading:
    cumulative = tuple(share * ended for share in shares)
    return HistogramReading(bounds=bounds, cumulative=cumulative, sum=ended * 0.04, count=ended)


def kept(
    *replicas: tuple[HistogramReading, float], itl_s: float = 0.05, phase: Phase = Phase.DECODE
) -> tuple[Measurement, float | None]:
    """What is said of a window in which each replica's histogram filled, and so many failed."""
    there = {f"r{i}": Member(pool="decode", state=READY) for i in range(len(replicas))}
    state, seen = ObserverState(), None
    for at_s in (T, T + 5.0):
        readings = {
            name: reading(
                name,
                at_s,
                tpot=replace(h, cumulative=(0.0,) * len(h.bounds), sum=0.0, count=0.0)
                if at_s == T
                else h,
                failed_requests=0.0 if at_s == T else failed,
            )
            for name, (h, failed) in zip(there, replicas, strict=True)
        }
        state, seen = step(
            state,
            now_s=at_s,
            readings=readings,
            router=None,
            pools=[replace(pool(len(there)), pool=replace(POOL, phase=phase))],
            members=there,
            slo=replace(SLO, itl_s=itl_s),
        )
    sample = seen.samples[0]
    return sample.tpot_within_slo_ratio, dict(sample.counted).get("tpot_within_slo_ratio")


ALL_JUST_ABOVE_40_MS = gaps(0.025, 0.05, 0.075, shares=(0.0, 1.0, 1.0), ended=40.0)
HALF = gaps(0.025, 0.05, 0.075, shares=(0.0, 0.5, 1.0), ended=120.0)
OTHER_BOUNDS = gaps(0.04, 0.06, shares=(0.0, 1.0), ended=40.0)


@pytest.mark.parametrize(
    ("replicas", "itl_s", "phase", "share", "count"),
    [
        pytest.param([(HALF, 0.0)], 0.05, Phase.DECODE, 0.5, 120.0, id="on-a-bound"),
        pytest.param([(HALF, 0.0)], 0.05, Phase.BOTH, 0.5, 120.0, id="aggregated"),
        pytest.param([(HALF, 0.0)], 0.05, Phase.PREFILL, None, None, id="never-of-prefill"),
        pytest.param([(HALF, 0.0)], 0.06, Phase.DECODE, None, None, id="off-the-bounds"),
        pytest.param([(HALF, 0.0)], 90.0, Phase.DECODE, None, None, id="above-the-last"),
        pytest.param(
            [(ALL_JUST_ABOVE_40_MS, 0.0), (HALF, 0.0)],
            *(0.05, Phase.DECODE, 0.625, 160.0),
            id="weighted-by-requests",
        ),
        pytest.param(
            [(HALF, 40.0)], 0.05, Phase.DECODE, 0.25, 80.0, id="failures-have-no-gap-of-0"
        ),
        pytest.param(
            [(ALL_JUST_ABOVE_40_MS, 0.0), (OTHER_BOUNDS, 0.0)],
            *(0.05, Phase.DECODE, None, None),
            id="half-of-the-replicas-have-other-bounds",
        ),
        pytest.param(
            [(gaps(0.05, shares=(0.0,), ended=0.0), 0.0)],
            *(0.05, Phase.DECODE, None, None),
            id="nothing-ended",
        ),
    ],
)
def test_the_share_of_gaps_within_the_slo_is_exact_or_not_known(
    replicas, itl_s, phase, share, count
) -> None:
    found, counted = kept(*replicas, itl_s=itl_s, phase=phase)

    assert (found.value, counted) == (share and pytest.approx(share), count)


@pytest.mark.parametrize(
    ("reporting", "rate"),
    [
        pytest.param(5, 500.0, id="all"),
        pytest.param(4, 500.0, id="four-scaled-up"),
        pytest.param(3, 500.0, id="three-of-five-is-just-enough"),
        pytest.param(2, None, id="two-of-five-is-not"),
        pytest.param(0, None, id="none"),
    ],
)
def test_sums_are_scaled_up_until_too_few_report(reporting: int, rate: float | None) -> None:
    tier, names = Tier(), ["a", "b", "c", "d", "e"]
    tier.steady(*names)
    readings = {n: reading(n, tier.now_s) for n in names[:reporting]}
    sample = tier.see(readings, members(*names))

    assert sample.output_tokens_per_s.value == (rate and pytest.approx(rate))
    assert sample.output_tokens_per_s.coverage_ratio == reporting / 5
    assert (sample.replicas_expected, sample.replicas_reporting) == (5, reporting)
    assert len(sample.problems) == 5 - reporting


def test_half_of_a_pool_is_not_enough() -> None:
    tier = Tier()
    tier.steady("a", "b")
    sample = tier.see({"a": reading("a", tier.now_s)}, members("a", "b"))

    assert sample.output_tokens_per_s.value is None
    assert sample.hottest_kv_used_ratio.value is None


def test_a_replica_that_discovery_misses_lowers_the_coverage() -> None:
    tier = Tier()
    tier.steady("a", "b")
    sample = tier.see({"a": reading("a", tier.now_s)}, members("a"), ready=2)

    assert sample.replicas_expected == 2
    assert sample.output_tokens_per_s == Measurement(None, None, 0.5)


def test_an_empty_discovery_is_not_an_idle_pool() -> None:
    tier = Tier()
    tier.steady("a", "b")
    lost = tier.see({}, {}, ready=2)
    unknown = tier.see({}, {}, known_ready=False)

    assert lost.running_requests.value is None
    assert unknown.output_tokens_per_s.value is None


HUGE = 1e308


@pytest.mark.parametrize("names", ["a", "ab", "abcd"])
@pytest.mark.parametrize("field", [f.name for f in fields(ReplicaReading)[2:]])
def test_a_number_too_large_to_add_up_is_unknown_and_ends_nothing(field: str, names: str) -> None:
    tier = Tier()
    tier.steady(*names)
    spread = HistogramReading(bounds=(1.0,), cumulative=(HUGE,), sum=HUGE, count=HUGE)
    now = reading("a", tier.now_s)
    huge = spread if isinstance(getattr(now, field), HistogramReading) else HUGE
    one = {n: replace(reading(n, tier.now_s), **{field: huge}) for n in names}  # type: ignore[arg-type]
    seen = values(tier.see(one, members(*names)))

    assert all(value is None or math.isfinite(value) for value in seen.values())


@pytest.mark.parametrize("desired", [None, 0, 1, 10])
@pytest.mark.parametrize(
    "there",
    [{}, members(a=STARTING), members(a=DRAINING), members("a"), None],
    ids=["nobody", "starting", "draining", "ready", "no-list"],
)
def test_only_a_pool_that_is_asked_to_have_none_is_idle_for_want_of_pages(
    desired: int | None, there: dict[str, Member] | None
) -> None:
    settings = PoolSettings(pool=POOL, min_replicas=0, max_replicas=20)
    (counted,) = pool_states([settings], there, {"decode": desired}, now_s=T)
    _, seen = step(
        ObserverState(),
        now_s=T,
        readings={},
        router=None,
        pools=[counted],
        members=there,
        slo=SLO,
    )
    (sample,) = seen.samples
    idle = desired == 0 and there is not None and "ready" not in {m.state for m in there.values()}
    contradicts = not there and not (there is not None and desired == 0)

    assert (sample.output_tokens_per_s.value == 0.0) == idle
    assert (sample.output_tokens_per_s.value is None) == (not idle)
    assert (counted.ready_replicas is None) == contradicts
    assert (counted.starting_replicas is None) == contradicts
    assert any("list" in problem for problem in sample.problems) == (not there and desired != 0)


def test_a_pool_scaled_from_none_to_one_is_seen_from_its_first_token() -> None:
    tier = Tier()
    tier.see({}, {})
    tier.see({}, members(a=STARTING), ready=0)
    born = reading("a", tier.now_s, process_start_time_s=tier.now_s - 4.0)
    sample = tier.see({"a": born}, members("a"))

    assert sample.output_tokens_per_s.value is not None
    assert sample.output_tokens_per_s.value > 0.0


@pytest.mark.parametrize("back_s", [6.0, 3600.0])
def test_a_clock_that_went_back_costs_one_window_and_no_more(back_s: float) -> None:
    tier = Tier()
    tier.steady("a", "b")
    tier.steady("a", "b")
    tier.now_s -= back_s
    first, second = tier.steady("a", "b"), tier.steady("a", "b")

    assert first.output_tokens_per_s.value is None
    assert first.running_requests.value is not None
    assert second.output_tokens_per_s.value is not None
    assert second.output_tokens_per_s.value >= 0.0
    assert second.problems == ()


def test_a_pool_that_is_known_to_have_no_replica_does_nothing() -> None:
    tier = Tier()
    tier.see({}, {})
    sample = tier.see({}, {})

    assert sample.output_tokens_per_s == Measurement(0.0, 0.0, 1.0)
    assert sample.itl_mean_s.value is None


def test_draining_replicas_work_on_and_are_not_expected() -> None:
    tier = Tier()
    tier.steady("a", "b", "c")
    there = members("a", c=DRAINING, b=DRAINING)
    sample = tier.see({n: reading(n, tier.now_s) for n in "abc"}, there)

    assert sample.replicas_expected == 1
    assert sample.output_tokens_per_s == Measurement(pytest.approx(300.0), 0.0, 1.0)
    assert sample.running_requests.value == 12.0
    assert sample.kv_capacity_tokens.value == 1_000.0  # what is draining is no capacity


def test_a_silent_draining_replica_costs_no_coverage() -> None:
    tier = Tier()
    tier.steady("a", "b")
    sample = tier.see({"a": reading("a", tier.now_s)}, members("a", b=DRAINING))

    assert sample.output_tokens_per_s == Measurement(pytest.approx(100.0), 0.0, 1.0)


def fresh(at_s: float, *, start_s: float, tokens: float) -> ReplicaReading:
    return reading("new", at_s, process_start_time_s=start_s, output_tokens=tokens)


@pytest.mark.parametrize(
    ("was", "start_s", "rate"),
    [
        # nothing is known of what it did before: 100/s of "a", scaled from 1 to 2
        pytest.param(None, T - 50.0, 200.0, id="seen-first"),
        # 100/s of "a" and 60 tokens in a window of 5 s
        pytest.param(None, T + 2.0, 112.0, id="started-within-the-window"),
        pytest.param(STARTING, T - 50.0, 112.0, id="was-seen-starting"),
    ],
)
def test_a_new_replica_counts_from_zero_only_if_it_began_within_the_window(
    was: ReplicaState | None, start_s: float, rate: float
) -> None:
    tier = Tier()
    there = members("a") if was is None else members("a", new=was)
    tier.see({"a": reading("a", tier.now_s)}, there)
    readings = {
        "a": reading("a", tier.now_s),
        "new": fresh(tier.now_s, start_s=start_s, tokens=60.0),
    }
    # with the usual floor, one of two would be too little to see the scaling
    settings = ObserverSettings(coverage_floor_ratio=0.5)
    _, seen = step(
        tier.state,
        now_s=tier.now_s,
        readings=readings,
        router=None,
        pools=[pool(2)],
        members=members("a", "new"),
        slo=None,
        settings=settings,
    )

    assert seen.samples[0].output_tokens_per_s.value == pytest.approx(rate)


def test_a_starting_replica_is_neither_expected_nor_missed() -> None:
    tier = Tier()
    tier.steady("a")
    sample = tier.see({"a": reading("a", tier.now_s)}, members("a", new=STARTING))

    assert sample.replicas_expected == 1
    assert sample.problems == ()


def test_a_missed_scrape_is_made_good_by_the_next() -> None:
    tier = Tier()
    tier.steady("a", "b", "c")
    tier.see({n: reading(n, tier.now_s) for n in "ab"}, members("a", "b", "c"))
    sample = tier.steady("a", "b", "c")

    assert sample.output_tokens_per_s == Measurement(pytest.approx(300.0), 0.0, 1.0)


def test_a_restart_costs_one_window_of_that_replica() -> None:
    tier = Tier()
    tier.steady("a", "b", "c")
    start_s = tier.now_s - 2.0
    born = reading("c", tier.now_s, process_start_time_s=start_s, output_tokens=10.0)
    sample = tier.see(
        {"a": reading("a", tier.now_s), "b": reading("b", tier.now_s), "c": born},
        members("a", "b", "c"),
    )

    assert sample.output_tokens_per_s.value == pytest.approx(300.0)  # 200 of two, scaled to three
    assert sample.output_tokens_per_s.coverage_ratio == pytest.approx(2 / 3)
    assert sample.running_requests.coverage_ratio == 1.0
    assert sample.problems == ("c: restarted: its counters began anew",)


def test_ages_grow_while_a_number_is_unknown() -> None:
    tier = Tier()
    tier.steady("a", "b")
    tier.steady("a", "b")
    gone = [tier.see({}, members("a", "b")) for _ in range(3)]
    back = tier.steady("a", "b")

    assert [sample.output_tokens_per_s.age_s for sample in gone] == [5.0, 10.0, 15.0]
    assert back.output_tokens_per_s.age_s == 0.0


def test_a_page_that_is_old_when_it_comes_is_used_with_its_age_and_then_not() -> None:
    tier = Tier()
    tier.steady("a")
    aged = tier.see({"a": reading("a", tier.now_s - 3.0)}, members("a"))
    tier.now_s += 20.0
    old = tier.see({"a": reading("a", tier.now_s - 16.0)}, members("a"))

    assert aged.output_tokens_per_s == Measurement(pytest.approx(100.0), 3.0, 1.0)
    assert old.output_tokens_per_s.value is None
    assert old.problems == ("a: the page is 16 s old",)


def test_late_pages_make_a_replica_unknown_and_then_known_again() -> None:
    tier, names = Tier(), ["a", "b", "c", "d"]
    for _ in range(25):
        tier.steady(*names)

    def late(name: str) -> ReplicaReading:
        return replace(reading(name, tier.now_s - 60.0), at_s=tier.now_s)

    for _ in range(20):
        sample = tier.see(
            {n: late(n) if n == "d" else reading(n, tier.now_s) for n in names}, members(*names)
        )
        assert sample.output_tokens_per_s.value == pytest.approx(400.0)
        assert sample.output_tokens_per_s.coverage_ratio == 0.75
        assert sample.problems == ("d: the page is 60 s late",)
    jump, after = tier.steady(*names), tier.steady(*names)

    assert jump.output_tokens_per_s.value == pytest.approx(400.0)
    assert jump.problems == ("d: no longer late: the jump is discarded",)
    assert after.output_tokens_per_s == Measurement(pytest.approx(400.0), 0.0, 1.0)


def test_frozen_pages_never_look_idle() -> None:
    tier = Tier()
    tier.steady("a")
    frozen = reading("a", tier.now_s - 5.0)
    samples = [tier.see({"a": replace(frozen, at_s=tier.now_s)}, members("a")) for _ in range(3)]

    assert [s.output_tokens_per_s.value for s in samples] == [None] * 3
    assert [s.running_requests.value for s in samples] == [None] * 3
    assert samples[2].problems == ("a: the page is frozen, 15 s by now",)


def test_uptime_in_the_sums_spoils_queue_and_prefill_time_and_nothing_else() -> None:
    tier = Tier()
    tier.steady("a", "b", "c")
    now = reading("c", tier.now_s)
    assert now.queue_time is not None
    assert now.prefill_time is not None
    broken = replace(
        now,
        failed_requests=1.0,
        queue_time=replace(now.queue_time, sum=now.queue_time.sum - 2e6),
        prefill_time=replace(now.prefill_time, sum=now.prefill_time.sum + 2e6),
    )
    sample = tier.see(
        {"a": reading("a", tier.now_s), "b": reading("b", tier.now_s), "c": broken},
        members("a", "b", "c"),
    )

    assert sample.queue_time_mean_s.value == pytest.approx(0.2)
    assert sample.prefill_time_mean_s.value == pytest.approx(0.1)
    assert sample.queue_time_mean_s.coverage_ratio == pytest.approx(2 / 3)
    assert sample.itl_mean_s.coverage_ratio == 1.0
    assert sample.failed_requests_per_s.value == pytest.approx(0.2)
    assert len(sample.problems) == 1
    assert sample.problems[0].startswith("c: queue_time fell by")


def test_an_absent_series_is_unknown_for_that_measurement_alone() -> None:
    tier = Tier()
    bare = {"computed_prompt_tokens": None, "itl": None, "kv_used_ratio": None}
    tier.see({"a": reading("a", tier.now_s, **bare)}, members("a"))
    sample = tier.see({"a": reading("a", tier.now_s, **bare)}, members("a"))

    unknown = {name for name, value in values(sample).items() if value is None}
    assert unknown == {
        "computed_prompt_tokens_per_s",
        "itl_mean_s",
        "kv_used_tokens",
        "hottest_kv_used_ratio",
    }


def test_a_computed_counter_that_falls_is_unknown_and_said() -> None:
    tier = Tier()
    tier.see({"a": reading("a", tier.now_s, computed_prompt_tokens=50.0)}, members("a"))
    sample = tier.see({"a": reading("a", tier.now_s, computed_prompt_tokens=20.0)}, members("a"))

    assert sample.computed_prompt_tokens_per_s.value is None
    assert sample.output_tokens_per_s.value == pytest.approx(100.0)
    assert sample.problems == ("a: computed_prompt_tokens fell by 30: its rate is not known",)


def test_means_are_weighted_by_what_they_count() -> None:
    tier = Tier()

    def readings() -> dict[str, ReplicaReading]:
        slow = reading("b", tier.now_s, tokens_per_s=300.0)
        assert slow.itl is not None
        return {
            "a": reading("a", tier.now_s),
            "b": replace(slow, itl=histogram(slow.itl.count, 0.06)),
        }

    tier.see(readings(), members("a", "b"))
    sample = tier.see(readings(), members("a", "b"))

    # (100 x 0.02 + 300 x 0.06) / 400; a mean of means would be 0.04
    assert sample.itl_mean_s.value == pytest.approx(0.05)


def test_nothing_finished_means_no_mean() -> None:
    tier = Tier()
    still = {"ttft": histogram(7.0, 0.5)}
    tier.see({"a": reading("a", tier.now_s, **still)}, members("a"))
    sample = tier.see({"a": reading("a", tier.now_s, **still)}, members("a"))

    assert sample.ttft_mean_s == Measurement(None, None, 1.0)


def test_a_page_of_nobody_is_said_and_not_counted() -> None:
    tier = Tier()
    _, seen = step(
        tier.state,
        now_s=T,
        readings={"ghost": reading("ghost", T)},
        router=None,
        pools=[pool(0)],
        members={},
        slo=None,
    )

    assert seen.problems == ("ghost: a page of no known replica",)
    assert seen.samples[0].running_requests.value == 0.0


def test_why_a_page_is_missing_is_said() -> None:
    _, seen = step(
        ObserverState(),
        now_s=T,
        readings={},
        router=None,
        pools=[pool(1)],
        members=members("a"),
        slo=None,
        problems={"a": "connection refused"},
    )

    assert seen.samples[0].problems == ("a: no page: connection refused",)


def play(moves: list[tuple[str, int]], *, through_json: bool) -> list[Observation]:
    """Three replicas, each move one step in which one of them misbehaves."""
    state, seen = ObserverState(), []
    there = members("a", "b", "c")
    for index, (what, who) in enumerate(moves):
        now_s = T + 5.0 * index
        readings = {n: reading(n, now_s) for n in there}
        name = "abc"[who]
        if what == "missing":
            del readings[name]
        elif what == "late":
            readings[name] = replace(reading(name, now_s - 40.0), at_s=now_s)
        elif what == "frozen":
            readings[name] = replace(reading(name, T), at_s=now_s)
        elif what == "restarted":
            readings[name] = reading(name, now_s, process_start_time_s=now_s - 1.0)
        state, observation = step(
            state,
            now_s=now_s,
            readings=readings,
            router=None,
            pools=[pool(3)],
            members=there,
            slo=None,
        )
        seen.append(observation)
        if through_json:
            state = ObserverState.from_json(json.loads(json.dumps(state.to_json())))
    return seen


def moves_of(*kinds: str) -> st.SearchStrategy[list[tuple[str, int]]]:
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 2)), max_size=14)


moves = moves_of("well", "missing", "late", "frozen", "restarted")


@given(moves_of("well", "missing", "late", "frozen"))
def test_a_rate_is_true_or_unknown_whatever_happens_to_the_pages(
    drawn: list[tuple[str, int]],
) -> None:
    # a first page that is late cannot be told from one that is not
    for observation in play([("well", 0), *drawn], through_json=False):
        sample = observation.samples[0]

        assert sample.output_tokens_per_s.value in (None, pytest.approx(300.0))
        assert sample.steps_per_s.value in (None, pytest.approx(75.0))
        assert sample.ttft_mean_s.value in (None, pytest.approx(0.5))
        assert sample.running_requests.value in (None, pytest.approx(12.0))


@given(moves)
def test_a_number_that_is_known_has_coverage_and_an_age(drawn: list[tuple[str, int]]) -> None:
    for observation in play(drawn, through_json=False):
        sample = observation.samples[0]
        for name, one in ((n, getattr(sample, n)) for n in MEASUREMENTS):
            assert one.value is None or one.value >= 0.0, name
            assert 0.0 <= one.coverage_ratio <= 1.0
            assert one.age_s is None or one.age_s >= 0.0
            if one.value is not None:
                assert one.coverage_ratio >= 0.6


@given(moves)
def test_a_checkpoint_between_any_two_steps_changes_nothing(drawn: list[tuple[str, int]]) -> None:
    assert play(drawn, through_json=True) == play(drawn, through_json=False)


@given(moves)
def test_the_same_pages_give_the_same_observation(drawn: list[tuple[str, int]]) -> None:
    assert play(drawn, through_json=False) == play(drawn, through_json=False)
