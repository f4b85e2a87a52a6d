"""The catalogue is the one table of what is read, and the dialects read nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from serving.catalogue import BY_NAME, CATALOGUE, MetricSpec, MetricType, Owner, Unit
from serving.dialects import epp, vllm, vllm_router
from serving.step_catalogue import STEP_SERIES
from serving.types import HistogramReading, ReplicaReading, RouterReading

OWNERS: Mapping[frozenset[str], tuple[Owner, ...]] = {
    vllm.WANTED: (Owner.PROCESS, Owner.VLLM),
    epp.WANTED: (Owner.EPP,),
    vllm_router.WANTED: (Owner.VLLM_ROUTER,),
}


@pytest.mark.parametrize("wanted", OWNERS, ids=lambda w: sorted(w)[-1])
def test_a_dialect_reads_what_the_catalogue_lists_and_nothing_else(wanted: frozenset[str]) -> None:
    listed = {n for s in CATALOGUE if s.owner in OWNERS[wanted] for n in s.sample_names}
    if wanted is vllm.WANTED:  # the step exporter is on an engine's page
        listed |= {spec.name for spec in STEP_SERIES if spec.field}

    assert listed == wanted


def test_no_name_is_listed_twice() -> None:
    assert len(BY_NAME) == len(CATALOGUE)


@pytest.mark.parametrize("spec", CATALOGUE, ids=lambda spec: spec.name)
def test_a_row_maps_to_a_field_of_its_reading(spec: MetricSpec) -> None:
    reading = ReplicaReading if spec.owner in (Owner.PROCESS, Owner.VLLM) else RouterReading
    kind = str(reading.__annotations__[spec.field])

    assert spec.help
    assert spec.absence
    assert (HistogramReading.__name__ in kind) == (spec.type is MetricType.HISTOGRAM)


@pytest.mark.parametrize("spec", CATALOGUE, ids=lambda spec: spec.name)
def test_a_name_does_not_contradict_its_unit(spec: MetricSpec) -> None:
    if spec.name.endswith(("_seconds", "_seconds_total")):
        assert spec.unit is Unit.SECONDS
    if spec.type is MetricType.COUNTER:
        assert spec.name.endswith("_total")


def test_every_field_of_a_reading_has_a_series() -> None:
    computed = {"cached_prompt_tokens", "transferred_prompt_tokens", "failed_requests"}
    for reading, owners in (
        (ReplicaReading, (Owner.PROCESS, Owner.VLLM, Owner.STEPS)),
        (RouterReading, (Owner.EPP,)),
    ):
        fields = {s.field for s in (*CATALOGUE, *STEP_SERIES) if s.owner in owners}
        words = set(reading.__annotations__) - {"replica", "at_s", "source"}

        assert words - fields <= computed
