"""Every series that is read or written, in one table: read, recognised, recorded, our own.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Mapping

from serving.catalogue import CATALOGUE, MetricSpec, MetricType, Owner
from serving.own import OWN
from serving.recognised import RECOGNISED
from serving.recorded import RECORDED
from serving.step_catalogue import STEP_SERIES

SERIES: tuple[MetricSpec, ...] = (
    *CATALOGUE,
    *RECOGNISED,
    *STEP_SERIES,
    *(
        MetricSpec(
            name=spec.name,
            type=MetricType.GAUGE,
            unit=spec.unit,
            labels=spec.labels,
            help=spec.help,
            absence=spec.absence,
            owner=Owner.RECORDED,
            field=spec.measurement,
        )
        for spec in RECORDED
    ),
    *OWN,
)
"""All rows: what is read or recognised, of steps, recorded, what phasewise says of itself."""

SERIES_BY_NAME: Mapping[str, MetricSpec] = {spec.name: spec for spec in SERIES}
"""The rows by name."""

SPEC_OF_SAMPLE: Mapping[str, MetricSpec] = {
    sample: spec for spec in SERIES for sample in spec.sample_names
}
"""The rows by the names that expressions use: a histogram's with `_bucket`, `_sum`, `_count`."""
