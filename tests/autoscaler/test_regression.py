import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.regression import empty_fit, learn_point, solve


def fitted(points, *, forget_s=900.0):
    fit = empty_fit(2)
    for at_s, x, y in points:
        fit = learn_point(fit, (1.0, x), y, weight=1.0, at_s=at_s, forget_s=forget_s)
    return fit


@pytest.mark.parametrize("wrong_by", [0.5, 1.0, 2.0])
def test_a_prior_wrong_by_two_is_corrected_within_a_minute_of_windows(wrong_by):
    base_s, slope = 0.010, 1e-4
    points = [
        (5.0 * k, 800.0 + 90.0 * (k % 7), base_s + slope * (800.0 + 90.0 * (k % 7)))
        for k in range(12)
    ]

    base, found = solve(
        fitted(points), prior=(base_s * wrong_by, slope * wrong_by), spread_ratio=0.5, noise=0.002
    )

    # what matters is the service time in the range seen, not how it is split
    assert base + found * 1000.0 == pytest.approx(0.11, rel=0.03)


def test_without_data_the_prior_stands():
    assert solve(empty_fit(2), prior=(0.02, 1e-4), spread_ratio=0.5, noise=0.01) == pytest.approx(
        (0.02, 1e-4)
    )


def test_old_windows_fade_so_that_a_new_speed_is_learned():
    slow = [(5.0 * k, 1000.0, 0.2) for k in range(60)]
    fast = [(300.0 + 5.0 * k, 1000.0, 0.1) for k in range(60)]

    base, slope = solve(
        fitted(slow + fast, forget_s=60.0), prior=(0.01, 1e-4), spread_ratio=0.5, noise=0.01
    )

    assert base + slope * 1000.0 == pytest.approx(0.1, rel=0.05)


@given(st.lists(st.tuples(st.floats(0.0, 1e4), st.floats(0.0, 10.0)), min_size=1, max_size=30))
def test_coefficients_are_finite_and_never_negative(points):
    fit = fitted([(5.0 * k, x, y) for k, (x, y) in enumerate(points)])

    found = solve(fit, prior=(0.01, 1e-4), spread_ratio=0.5, noise=0.01)

    assert all(math.isfinite(v) and v >= 0.0 for v in found)


@pytest.mark.parametrize("y", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_teaches_nothing(y):
    fit = empty_fit(2)

    assert learn_point(fit, (1.0, 5.0), y, weight=1.0, at_s=0.0, forget_s=900.0) == fit
