import pytest

from autoscaler.lead import LeadModel, learn_lead
from serving.testing import DECODE, make_pool_state


def looks(*states):
    model = LeadModel(prior_s=120.0)
    for state in states:
        model = learn_lead(model, state)
    return model


def at(at_s, *, ready, since=()):
    return make_pool_state(
        DECODE,
        at_s=at_s,
        desired=ready + len(since),
        ready=ready,
        starting=len(since),
        starting_since_s=since,
    )


def test_a_start_that_ended_is_a_duration():
    model = looks(at(5.0, ready=2), at(10.0, ready=2, since=(10.0,)), at(95.0, ready=3))

    assert model.durations_s == (85.0,)


def test_a_start_that_was_cancelled_teaches_nothing():
    model = looks(at(10.0, ready=2, since=(10.0,)), at(40.0, ready=2))

    assert model.durations_s == ()


def test_the_oldest_starts_end_first_when_only_some_became_ready():
    model = looks(at(20.0, ready=2, since=(10.0, 20.0)), at(130.0, ready=3, since=(20.0,)))

    assert model.durations_s == (120.0,)


@pytest.mark.parametrize("since_s", [-2e5, 200.0], ids=["days-ago", "in-the-future"])
def test_a_start_by_another_clock_teaches_nothing(since_s):
    model = looks(at(90.0, ready=2, since=(since_s,)), at(95.0, ready=3))

    assert model.durations_s == ()


UNKNOWN = make_pool_state(DECODE, at_s=15.0, desired=None)


@pytest.mark.parametrize(
    ("seen", "durations_s"),
    [
        pytest.param([UNKNOWN], (), id="not-seen"),
        pytest.param([UNKNOWN, at(300.0, ready=3)], (), id="ended-while-not-seen"),
        pytest.param([UNKNOWN, at(300.0, ready=2)], (), id="cancelled-while-not-seen"),
        pytest.param(
            [UNKNOWN, at(20.0, ready=2, since=(10.0,)), at(70.0, ready=3)],
            (60.0,),
            id="still-starting-afterwards",
        ),
    ],
)
def test_a_start_that_ends_while_its_pool_is_not_seen_teaches_nothing(seen, durations_s):
    assert looks(at(10.0, ready=2, since=(10.0,)), *seen).durations_s == durations_s


@pytest.mark.parametrize(
    ("starts", "p95_s"),
    [
        pytest.param((), 120.0, id="only-the-prior"),
        pytest.param((200.0,) * 2, 200.0, id="two-slow-starts-raise-it"),
        pytest.param((60.0,) * 32, 120.0, id="the-prior-still-bounds-it-from-below-slowly"),
    ],
)
def test_the_prior_counts_as_three_starts(starts, p95_s):
    assert LeadModel(prior_s=120.0, durations_s=starts).p95_s == p95_s


def test_the_median_follows_the_starts_seen():
    assert LeadModel(prior_s=120.0, durations_s=(60.0,) * 10).p50_s == 60.0
