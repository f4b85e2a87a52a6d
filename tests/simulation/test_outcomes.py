"""What counts as a good request."""

from math import nan

import pytest

from serving.simulation.outcomes import Outcomes
from serving.types import Slo

SLO = Slo(ttft_s=2.0, itl_s=0.05, attainment_ratio=0.9)


@pytest.mark.parametrize(
    ("finished", "ttft_s", "itl_s", "good"),
    [
        pytest.param(1, 2.0, 0.05, True, id="on-the-targets"),
        pytest.param(1, 2.001, 0.01, False, id="late-first-token"),
        pytest.param(1, 1.0, 0.051, False, id="slow"),
        pytest.param(1, 1.0, nan, True, id="one-token-answer"),
        pytest.param(0, 1.0, 0.01, False, id="not-finished"),
        pytest.param(0, nan, nan, False, id="no-token"),
    ],
)
def test_a_request_is_good_if_it_finished_within_both_targets(finished, ttft_s, itl_s, good):
    outcomes = Outcomes(1)
    outcomes.finished[0] = finished
    outcomes.ttft_s[0] = ttft_s
    outcomes.mean_itl_s[0] = itl_s

    assert outcomes.is_good(0, SLO) is good
    assert outcomes.attainment_ratio(SLO) == float(good)


def test_no_requests_have_no_attainment():
    assert Outcomes(0).attainment_ratio(SLO) is None
