import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.forecast import (
    FORECASTERS,
    Point,
    RateHistory,
    choose,
    damped_trend,
    forecast,
    learn_errors,
    learn_level,
    upper_margin,
)


def line(start, slope, count=120, noise=0.0):
    return [Point(5.0 * k, start + slope * 5.0 * k + noise * (-1) ** k) for k in range(count)]


def history_of(points, lead_s=120.0):
    history = RateHistory()
    for point in points:
        history = learn_errors(
            learn_level(history, at_s=point.at_s, per_s=point.per_s), lead_s=lead_s
        )
    return history


@pytest.mark.parametrize("forecaster", FORECASTERS, ids=lambda f: f.name)
class TestEveryForecaster:
    def test_has_no_opinion_without_history(self, forecaster):
        assert forecaster.predict([], 120.0) is None

    def test_says_the_level_of_a_flat_rate(self, forecaster):
        assert forecaster.predict(line(500.0, 0.0), 120.0) == pytest.approx(500.0)

    def test_gives_the_same_answer_twice(self, forecaster):
        points = line(500.0, 0.5, noise=20.0)

        assert forecaster.predict(points, 120.0) == forecaster.predict(points, 120.0)

    @given(st.lists(st.floats(0.0, 1e7), min_size=1, max_size=80), st.floats(5.0, 1800.0))
    def test_never_leaves_the_finite_and_never_goes_below_zero(self, forecaster, values, lead_s):
        said = forecaster.predict([Point(5.0 * k, v) for k, v in enumerate(values)], lead_s)

        assert said is not None
        assert math.isfinite(said)
        assert said >= 0.0


def test_a_clear_ramp_is_followed_to_the_lead():
    points = line(1000.0, 1.0)

    assert damped_trend(points, 120.0) == pytest.approx(points[-1].per_s + 120.0, rel=0.01)


def test_a_trend_is_capped():
    points = line(1000.0, 3.0)

    assert damped_trend(points, 1800.0) == pytest.approx(1.4 * points[-1].per_s)


def test_last_value_is_used_until_another_has_beaten_it():
    same = tuple([0.1] * 20)

    assert choose((same, same, same)) == 0
    assert choose((same, tuple([0.09] * 20), tuple([0.05] * 20))) == 2
    assert choose(((), tuple([0.0] * 20), ())) == 0


def test_on_a_ramp_the_trend_takes_over_by_its_errors():
    history = history_of(line(1000.0, 1.0))

    found = forecast(history, now_s=595.0, lead_s=120.0, upper_ratio=0.9, stale_s=20.0)

    assert found is not None
    assert found.forecaster == "damped_trend"
    assert found.upper_per_s >= found.expected_per_s >= found.level_per_s


def test_a_falling_forecast_is_not_below_the_level_now():
    history = history_of(line(2000.0, -1.0))

    found = forecast(history, now_s=595.0, lead_s=120.0, upper_ratio=0.9, stale_s=20.0)

    assert found is not None
    assert found.expected_per_s >= found.level_per_s


def test_a_stale_history_gives_no_forecast():
    history = history_of(line(1000.0, 0.0))

    assert forecast(history, now_s=700.0, lead_s=120.0, upper_ratio=0.9, stale_s=20.0) is None
    assert forecast(RateHistory(), now_s=0.0, lead_s=1.0, upper_ratio=0.9, stale_s=20.0) is None


@given(st.lists(st.floats(-2.0, 2.0), max_size=200), st.floats(0.5, 0.98))
def test_the_margin_covers_its_share_of_the_errors(errors, ratio):
    margin = upper_margin(errors, ratio=ratio)

    assert margin >= 0.0
    if len(errors) >= 180:
        covered = sum(e <= margin for e in errors) / len(errors)
        assert covered >= ratio - 0.12


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -1.0])
def test_a_level_that_is_no_rate_leaves_a_gap(value):
    assert learn_level(RateHistory(), at_s=5.0, per_s=value) == RateHistory()
