"""The lead by kind of start and by stage: what is told, what is counted, what stays unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.codec import dump_observations, load_observations
from autoscaler.lead import LeadModel, LearnedStart, lead_told, learn_lead, not_seen
from autoscaler.types import Lead
from serving.testing import DECODE, make_observation, make_pool_state
from serving.types import PoolState, Start, StartKind, StartStage

COLD, WARM = StartKind.COLD, StartKind.WARM
WEIGHTS, PROCESS = StartStage.WEIGHTS, StartStage.PROCESS


def at(
    at_s: float,
    *,
    ready: int,
    since: tuple[float, ...] = (),
    kinds: tuple[StartKind | None, ...] = (),
    starts: tuple[Start, ...] = (),
    next_start: StartKind | None = None,
) -> PoolState:
    state = make_pool_state(
        DECODE,
        at_s=at_s,
        desired=ready + len(since),
        ready=ready,
        starting=len(since),
        starting_since_s=since,
    )
    return replace(state, starting_kinds=kinds, starts=starts, next_start=next_start)


def looks(*states: PoolState) -> LeadModel:
    model = LeadModel(prior_s=60.0)
    for state in states:
        model = learn_lead(model, state)
    return model


def model_of(
    cold: int,
    warm: int,
    *,
    newest_kind: StartKind | None = None,
    next_kind: StartKind | None = None,
) -> LeadModel:
    told = [LearnedStart(seconds=180.0, kind=COLD)] * cold
    told += [LearnedStart(seconds=30.0, kind=WARM)] * warm
    return LeadModel(
        prior_s=60.0,
        durations_s=tuple(s.seconds for s in told),
        told=tuple(told),
        newest_kind=newest_kind,
        next_kind=next_kind,
    )


@pytest.mark.parametrize(
    ("model", "kind", "p50_s", "p95_s"),
    [
        pytest.param(model_of(9, 9), None, 60.0, 180.0, id="nothing-said-all-alike"),
        pytest.param(model_of(9, 9, newest_kind=WARM), WARM, 30.0, 60.0, id="newest-start"),
        pytest.param(model_of(9, 9, newest_kind=COLD), COLD, 180.0, 180.0, id="newest-is-cold"),
        pytest.param(
            model_of(9, 9, newest_kind=COLD, next_kind=WARM), WARM, 30.0, 60.0, id="source-first"
        ),
        pytest.param(model_of(9, 0, next_kind=WARM), WARM, 60.0, 60.0, id="never-seen-is-prior"),
        pytest.param(model_of(2, 9, next_kind=COLD), COLD, 60.0, 180.0, id="few-against-prior"),
    ],
)
def test_the_plan_counts_with_the_kind_of_the_next_start(
    model: LeadModel, kind: StartKind | None, p50_s: float, p95_s: float
) -> None:
    assert (model.kind, model.p50_s, model.p95_s) == (kind, p50_s, p95_s)


def test_a_start_takes_its_kind_and_its_stages_from_its_source() -> None:
    stages = ((PROCESS, 10.0), (WEIGHTS, 145.0))
    model = looks(
        at(10.0, ready=1, since=(10.0,), kinds=(COLD,)),
        at(190.0, ready=2, starts=(Start(created_s=10.0, kind=COLD, stages=stages),)),
    )

    assert model.told == (LearnedStart(seconds=180.0, kind=COLD, stages=stages),)
    assert model.newest_kind is COLD


def test_starts_of_one_moment_are_told_apart_by_kind() -> None:
    model = looks(
        at(0.0, ready=1, since=(0.0, 0.0), kinds=(COLD, WARM)),
        at(30.0, ready=2, since=(0.0,), kinds=(COLD,)),
        at(180.0, ready=3),
    )

    assert [(s.kind, s.seconds) for s in model.told] == [(WARM, 30.0), (COLD, 180.0)]
    assert model.durations_s == (30.0, 180.0)


def test_the_kind_may_be_said_only_once_a_replica_is_ready() -> None:
    model = looks(
        at(0.0, ready=1, since=(0.0,)),
        at(30.0, ready=2, starts=(Start(created_s=0.0, kind=WARM),)),
    )

    assert model.told == (LearnedStart(seconds=30.0, kind=WARM),)


def test_a_start_that_goes_on_is_the_newest_one() -> None:
    model = looks(
        at(0.0, ready=1, since=(0.0,), kinds=(WARM,)),
        at(30.0, ready=2),
        at(40.0, ready=2, since=(40.0,), kinds=(COLD,)),
    )

    assert model.kind is COLD


def test_without_a_word_on_kinds_everything_is_as_if_there_were_none() -> None:
    model = looks(at(0.0, ready=1, since=(0.0,)), at(85.0, ready=2))

    assert (model.durations_s, model.told, model.kind) == ((85.0,), (), None)
    assert lead_told(model) is None


def test_the_last_starts_of_each_kind_are_kept() -> None:
    model = LeadModel(prior_s=60.0)
    for number in range(40):
        kind = COLD if number < 4 else WARM
        since_s = 100.0 * number
        model = learn_lead(model, at(since_s, ready=1, since=(since_s,), kinds=(kind,)))
        model = learn_lead(model, at(since_s + 30.0, ready=2))
        model = not_seen(model)

    assert (len(model.of_kind(COLD)), len(model.of_kind(WARM))) == (4, 32)


def test_a_stage_that_was_never_observed_is_not_in_the_medians() -> None:
    told = (
        LearnedStart(seconds=180.0, kind=COLD, stages=((WEIGHTS, 100.0),)),
        LearnedStart(seconds=200.0, kind=COLD, stages=((WEIGHTS, 140.0), (PROCESS, 9.0))),
        LearnedStart(seconds=31.0, kind=WARM, stages=((WEIGHTS, 0.0),)),
    )
    model = LeadModel(prior_s=60.0, told=told, newest_kind=WARM)

    assert model.stages_s(COLD) == ((PROCESS, 9.0), (WEIGHTS, 120.0))
    assert model.stages_s(WARM) == ((WEIGHTS, 0.0),)
    lead = lead_told(model)
    assert isinstance(lead, Lead)
    assert [(k.kind, k.starts) for k in lead.kinds] == [(COLD, 2), (WARM, 1)]
    assert lead.counted is WARM


def test_the_ledger_keeps_kinds_and_reads_what_was_written_before_there_were_any() -> None:
    state = at(
        190.0,
        ready=2,
        since=(100.0,),
        kinds=(WARM,),
        starts=(Start(created_s=10.0, kind=COLD, stages=((WEIGHTS, 145.0),)),),
        next_start=WARM,
    )
    seen = (make_observation(at_s=190.0, pools=(state,)),)
    bare = at(190.0, ready=2, since=(100.0,))
    old = dump_observations((make_observation(at_s=190.0, pools=(bare,)),))
    for field in (b'"starting_kinds":[],', b'"starts":[],', b',"next_start":null'):
        assert field in old
        old = old.replace(field, b"")

    assert load_observations(dump_observations(seen)) == seen
    assert load_observations(old)[0].pools == (bare,)
