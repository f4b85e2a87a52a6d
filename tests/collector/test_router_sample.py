"""The router's window: the user's clock, and how many requests were within the SLO."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from collector.derive_router import MEASUREMENTS, within_ratios
from collector.observe import ObserverState, step
from collector.spread import growth
from serving.types import (
    HistogramReading,
    Measurement,
    RouterReading,
    RouterSample,
    Slo,
)

SLO = Slo(ttft_s=1.0, itl_s=0.04, attainment_ratio=0.9)
T = 1_000_000.0


def spread(count: float, mean: float, *bounds: float, under: float = 0.5) -> HistogramReading:
    """`under` of the count lie below the first bound, the rest below the second."""
    return HistogramReading(
        bounds=bounds,
        cumulative=(count * under, *([count] * (len(bounds) - 1))),
        sum=count * mean,
        count=count,
    )


def reading(at_s: float) -> RouterReading:
    """10 requests/s since T - 100, of which one in ten failed; answers end after 8 of ten."""
    arrived = 10.0 * (at_s - T + 100.0)
    done = 0.8 * arrived
    return RouterReading(
        at_s=at_s,
        source="epp",
        requests=arrived,
        failed_requests=0.1 * arrived,
        running_requests=12.0,
        input_tokens=spread(done, 900.0, 512.0, 1024.0),
        cached_tokens=spread(done, 100.0, 64.0, 128.0),
        output_tokens=spread(done, 80.0, 64.0, 128.0),
        ttft=spread(0.9 * arrived, 0.7, 1.0, 2.0, under=0.75),
        tpot=spread(done, 0.03, 0.04, 0.06, under=0.5),
        itl=spread(80.0 * done, 0.03, 0.04, 0.06),
    )


def windows(*readings: RouterReading | None, slo: Slo | None = SLO) -> list[RouterSample | None]:
    state, found = ObserverState(), []
    for index, one in enumerate(readings):
        state, seen = step(
            state,
            now_s=T + 5.0 * index,
            readings={},
            router=one,
            pools=[],
            members={},
            slo=slo,
            problems={} if one is not None else {"router": "cannot connect"},
        )
        found.append(seen.router)
    return found


def second(*, slo: Slo | None = SLO) -> RouterSample:
    sample = windows(reading(T), reading(T + 5.0), slo=slo)[1]
    assert sample is not None
    return sample


def test_every_measurement_of_a_sample_is_derived() -> None:
    measured = {f.name for f in fields(RouterSample) if "Measurement" in str(f.type)}

    assert measured == set(MEASUREMENTS)


def test_a_window_knows_everything() -> None:
    sample = second()

    assert {name: getattr(sample, name).value for name in MEASUREMENTS} == pytest.approx(
        {
            "requests_per_s": 10.0,
            "failed_requests_per_s": 1.0,
            "running_requests": 12.0,
            "input_tokens_mean": 900.0,
            "cached_tokens_mean": 100.0,
            "output_tokens_mean": 80.0,
            "finished_requests_per_s": 8.0,
            "ttft_mean_s": 0.7,
            "ttft_within_slo_ratio": 0.75,
            "tpot_mean_s": 0.03,
            "tpot_within_slo_ratio": 0.5,
        }
    )
    assert sample.problems == ()
    assert sample.requests_per_s.age_s == 0.0
    assert sample.requests_per_s.coverage_ratio == 1.0


def test_the_first_page_knows_only_what_runs_now() -> None:
    (sample,) = windows(reading(T))

    assert sample is not None
    assert sample.running_requests.value == 12.0
    assert sample.requests_per_s.value is None


def test_without_an_slo_nobody_asks_what_is_within_it() -> None:
    assert second(slo=None).ttft_within_slo_ratio.value is None


def test_an_slo_off_the_bucket_bounds_is_said_once_and_nothing_is_interpolated() -> None:
    odd = Slo(ttft_s=1.5, itl_s=0.04, attainment_ratio=0.9)
    first, then = windows(reading(T), reading(T + 5.0), slo=odd)
    assert first is not None
    assert then is not None

    assert first.problems == (
        "router: the ttft threshold of 1.5 s is no bucket bound of epp: the truth lies between the "
        "shares within 1 s and 2 s, and is unknown where they differ by more than 0.02",
    )
    assert then.problems == ()
    # three quarters below 1 s, all below 2 s
    assert then.ttft_within_slo_ratio == Measurement(None, None, 1.0)
    assert then.between == (("ttft_within_slo_ratio", 0.75, 1.0),)
    assert dict(then.counted)["ttft_within_slo_ratio"] == pytest.approx(45.0)


def test_above_the_last_bound_the_problem_names_the_last() -> None:
    (first,) = windows(reading(T), slo=Slo(ttft_s=1.0, itl_s=0.07, attainment_ratio=0.9))
    assert first is not None

    assert "between none or all and the share within 0.06 s" in first.problems[0]


def test_all_gaps_just_above_a_bound_are_not_half_within() -> None:
    """An SLO of 50 ms between bounds of 40 and 60 ms, and every gap between these."""
    slo = Slo(ttft_s=1.0, itl_s=0.05, attainment_ratio=0.9)
    pages = [
        replace(one, tpot=spread(one.tpot.count, 0.042, 0.04, 0.06, under=0.0))
        for one in (reading(T), reading(T + 5.0))
        if one.tpot is not None
    ]
    sample = windows(*pages, slo=slo)[1]
    assert sample is not None

    assert sample.tpot_within_slo_ratio.value is None
    assert sample.between == (("tpot_within_slo_ratio", 0.0, 1.0),)


@pytest.mark.parametrize(
    ("limit", "shares"),
    [
        pytest.param(1.0, (0.75, 0.75), id="a-bound"),
        pytest.param(2.0, (0.9, 0.9), id="another-bound"),
        pytest.param(0.5, (0.0, 0.75), id="inside-the-first-bucket"),
        pytest.param(1.5, (0.75, 0.9), id="inside-the-second"),
        pytest.param(3.0, (0.9, 1.0), id="above-the-last-where-some-are"),
    ],
)
def test_the_share_within_a_limit(limit: float, shares: tuple[float, float]) -> None:
    histogram = HistogramReading(bounds=(1.0, 2.0), cumulative=(75.0, 90.0), sum=90.0, count=100.0)
    grown = growth(histogram, None)
    assert grown is not None

    assert within_ratios(grown, limit) == pytest.approx(shares)


def test_of_two_close_shares_the_lower_is_taken() -> None:
    odd = Slo(ttft_s=1.5, itl_s=0.04, attainment_ratio=0.9)
    pages = [
        replace(one, ttft=spread(one.ttft.count, 0.7, 1.0, 2.0, under=0.985))
        for one in (reading(T), reading(T + 5.0))
        if one.ttft is not None
    ]
    sample = windows(*pages, slo=odd)[1]
    assert sample is not None

    assert sample.ttft_within_slo_ratio.value == pytest.approx(0.985)


def test_above_the_last_bound_with_nothing_there_all_are_within() -> None:
    grown = growth(HistogramReading(bounds=(1.0,), cumulative=(9.0,), sum=1.0, count=9.0), None)
    assert grown is not None

    assert within_ratios(grown, 3.0) == (1.0, 1.0)


def test_a_poor_router_page_gives_arrivals_alone() -> None:
    poor = [
        RouterReading(
            at_s=T + 5.0 * i, source="vllm-router", requests=40.0 * i, running_requests=3.0
        )
        for i in range(2)
    ]
    sample = windows(*poor)[1]
    assert sample is not None

    known = {n for n in MEASUREMENTS if getattr(sample, n).value is not None}
    assert known == {"requests_per_s", "running_requests"}
    assert sample.requests_per_s.value == 8.0


def test_a_router_that_is_gone_is_unknown_with_its_age() -> None:
    samples = windows(reading(T), reading(T + 5.0), None, None, reading(T + 20.0))
    gone, back = samples[3], samples[4]
    assert gone is not None
    assert back is not None

    assert gone.requests_per_s == Measurement(None, 10.0, 0.0)
    assert gone.problems == ("router: no page: cannot connect",)
    assert back.requests_per_s.value == pytest.approx(10.0)  # over the true 15 s


def test_a_router_that_restarts_costs_one_window() -> None:
    anew = replace(reading(T - 99.0), at_s=T + 5.0)
    after = replace(reading(T - 94.0), at_s=T + 10.0)
    first, second_, third = windows(reading(T), anew, after)
    assert first is not None
    assert second_ is not None
    assert third is not None

    assert second_.requests_per_s.value is None
    assert "taken as a restart" in second_.problems[0]
    assert third.requests_per_s.value == pytest.approx(10.0)


def test_another_kind_of_router_page_begins_anew() -> None:
    other = RouterReading(at_s=T + 5.0, source="vllm-router", requests=9_000.0)
    sample = windows(reading(T), other)[1]
    assert sample is not None

    assert sample.source == "vllm-router"
    assert sample.requests_per_s.value is None


def test_a_tier_without_a_router_has_no_sample() -> None:
    _, seen = step(
        ObserverState(), now_s=T, readings={}, router=None, pools=[], members={}, slo=SLO
    )

    assert seen.router is None
