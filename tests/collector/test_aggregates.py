"""The recorded series from observations: a minute of samples becomes one number, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from collector.aggregates import aggregate, last_minute
from serving.recorded import RECORDED, RECORDED_BY_NAME
from serving.testing import DECODE, PREFILL, make_observation, make_sample
from serving.types import Measurement, Observation, PhaseSample, RouterSample

KNOWN = Measurement(1.0, 0.0, 1.0)


def router(at_s: float, *, counted: tuple[tuple[str, float], ...] = (), **values: float | None):
    known: dict[str, Any] = {n: Measurement(value, 0.0, 1.0) for n, value in values.items()}
    return RouterSample(
        source="epp",
        window_start_s=at_s - 5.0,
        window_s=5.0,
        counted=counted,
        **known,
    )


def seen(at_s: float, *samples: PhaseSample, front: RouterSample | None = None) -> Observation:
    return replace(make_observation(*samples, at_s=at_s), router=front)


def values(observations: Sequence[Observation]) -> dict[tuple[str, ...], float]:
    return {(one.spec.name, *one.labels): one.value for one in aggregate(observations, tier="demo")}


def test_a_rate_is_weighted_by_the_time_of_each_window_of_the_last_minute() -> None:
    minute = [
        seen(0.0, make_sample(DECODE, at_s=0.0, output_tokens_per_s=1e9)),
        seen(10.0, make_sample(DECODE, at_s=10.0, window_s=10.0, output_tokens_per_s=100.0)),
        seen(60.0, make_sample(DECODE, at_s=60.0, window_s=30.0, output_tokens_per_s=500.0)),
    ]
    key = ("phase:output_tokens:rate1m", "demo", "decode", "decode")

    assert values(minute)[key] == pytest.approx((100.0 * 10 + 500.0 * 30) / 40)
    assert len(last_minute(minute)) == 2
    assert aggregate([], tier="demo") == ()


def test_a_mean_is_weighted_by_what_was_counted() -> None:
    minute = [
        seen(
            5.0,
            replace(
                make_sample(DECODE, at_s=5.0, itl_mean_s=0.02), counted=(("itl_mean_s", 300.0),)
            ),
        ),
        seen(
            10.0,
            replace(
                make_sample(DECODE, at_s=10.0, itl_mean_s=0.08), counted=(("itl_mean_s", 100.0),)
            ),
        ),
        seen(15.0, make_sample(DECODE, at_s=15.0)),
    ]

    found = values(minute)["phase:itl_seconds:mean1m", "demo", "decode", "decode"]

    assert found == pytest.approx(0.035)


def test_a_gauge_is_the_newest_sample_or_nothing() -> None:
    key = ("phase:requests_running:sum", "demo", "decode", "decode")
    busy = seen(5.0, make_sample(DECODE, at_s=5.0, running_requests=40.0))
    idle = seen(10.0, make_sample(DECODE, at_s=10.0, running_requests=0.0))
    blind = seen(15.0, make_sample(DECODE, at_s=15.0))

    assert values([busy, idle])[key] == 0.0
    assert key not in values([busy, blind])


def test_what_is_unknown_in_a_window_is_left_out_of_its_rate_and_never_zero() -> None:
    key = ("phase:output_tokens:rate1m", "demo", "decode", "decode")
    known = seen(5.0, make_sample(DECODE, at_s=5.0, output_tokens_per_s=100.0))
    blind = seen(10.0, make_sample(DECODE, at_s=10.0, output_tokens_per_s=None))

    assert values([known, blind])[key] == 100.0
    assert key not in values([blind])


def test_pools_are_kept_apart_and_the_user_is_of_the_whole_tier() -> None:
    minute = [
        seen(
            5.0,
            make_sample(PREFILL, at_s=5.0, prompt_tokens_per_s=10.0),
            make_sample(DECODE, at_s=5.0, prompt_tokens_per_s=20.0),
            front=router(5.0, ttft_mean_s=0.4, counted=(("ttft_mean_s", 4.0),)),
        )
    ]
    found = values(minute)

    assert found["phase:prompt_tokens:rate1m", "demo", "prefill", "prefill"] == 10.0
    assert found["phase:prompt_tokens:rate1m", "demo", "decode", "decode"] == 20.0
    assert found["phase:user_ttft_seconds:mean1m", "demo"] == 0.4
    assert found["phase:replicas_reporting:count", "demo", "decode", "decode"] == 4.0


def shares(at_s: float, n: float, least: float, most: float, name: str = "ttft") -> Observation:
    field = f"{name}_within_slo_ratio"
    known = least if most - least <= 0.02 else None
    front = router(at_s, counted=((field, n),), **{field: known})
    return seen(at_s, front=replace(front, between=((field, least, most),)))


@pytest.mark.parametrize(
    ("minute", "value"),
    [
        pytest.param([(10.0, 0.9, 0.91)], 0.9, id="close"),
        pytest.param([(10.0, 0.5, 1.0)], None, id="far-apart"),
        # one unsure window among many is judged with them, never left out
        pytest.param([(95.0, 1.0, 1.0), (5.0, 0.8, 1.0)], 0.99, id="close-as-a-whole"),
        pytest.param([(50.0, 1.0, 1.0), (50.0, 0.8, 1.0)], None, id="far-as-a-whole"),
    ],
)
def test_a_share_between_two_bounds_is_joined_before_it_is_judged(minute, value) -> None:
    windows = [shares(5.0 * i, *window) for i, window in enumerate(minute)]
    found = values(windows).get(("phase:user_ttft_within_slo:ratio1m", "demo"))

    assert found == (value and pytest.approx(value))


def test_the_gap_s_share_is_the_front_end_s_if_exact_and_else_decode_s() -> None:
    key, field = ("phase:user_tpot_within_slo:ratio1m", "demo"), "tpot_within_slo_ratio"
    decode = replace(
        make_sample(DECODE, at_s=5.0, tpot_within_slo_ratio=0.97), counted=((field, 30.0),)
    )
    unsure = shares(5.0, 30.0, 0.95, 0.96, "tpot")
    exact = router(5.0, counted=((field, 30.0),), tpot_within_slo_ratio=0.9)

    assert values([seen(5.0, decode, front=exact)])[key] == 0.9
    assert values([replace(unsure, samples=(decode,))])[key] == pytest.approx(0.97)
    assert values([seen(5.0, decode)])[key] == pytest.approx(0.97)
    assert key not in values([unsure])


def test_no_page_read_is_not_a_count_of_zero() -> None:
    lost = replace(make_sample(DECODE, at_s=5.0), replicas_reporting=0)

    assert values([seen(5.0, lost)]) == {}


def test_a_counter_of_the_front_end_that_begins_within_the_minute_began_at_zero() -> None:
    """Absent until its first event; while the front end is silent it may have risen."""
    key = ("phase:user_requests_failed:rate1m", "demo")
    quiet = seen(5.0, front=router(5.0, requests_per_s=9.0))
    silent = seen(10.0, front=router(10.0))
    failing = seen(15.0, front=router(15.0, requests_per_s=9.0, failed_requests_per_s=3.0))

    assert values([quiet, silent, failing])[key] == pytest.approx(1.5)
    assert key not in values([quiet])


@pytest.mark.parametrize("spec", RECORDED, ids=lambda spec: spec.name)
def test_every_recorded_series_has_a_measurement(spec) -> None:
    sample = RouterSample if spec.of_user else PhaseSample

    assert spec.measurement in {one.name for one in fields(sample)}
    assert RECORDED_BY_NAME[spec.name] is spec
