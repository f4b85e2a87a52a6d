"""Every series that is read or written anywhere is in the catalogue, once, with type and unit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.catalogue import MetricType, Unit
from serving.own import OWN
from serving.recorded import RECORDED
from serving.series import SERIES, SERIES_BY_NAME, SPEC_OF_SAMPLE

ROOT = Path(__file__).parents[2]
ROOMS = ("alerts", "autoscaler", "collector", "dashboards", "phasewise", "serving")
NAMES = re.compile(
    r"phase:[a-z0-9_]+:[a-z0-9_]+"
    r"|(?<![\w/.])(?:vllm:|llm_d_epp_|llm_d_router_epp_|inference_(?:objective|model)_"
    r"|vllm_router_|phasewise_(?!vllm_steps|step_delay))[a-z0-9_]+(?![\w:/.{*])"  # our plugins
)


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every string in a file but docstrings; the parts of an f-string one by one are no names."""
    tree = ast.parse(path.read_text())
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            skipped.add(id(body[0].value))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
        ):
            yield node.lineno, node.value


FILES = [
    path
    for room in ROOMS
    for path in sorted((ROOT / room).rglob("*.py"))
    if "simulation" not in path.parts  # writes the pages of others, as they are
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_series_in_the_code_is_in_the_catalogue(path: Path) -> None:
    found = {name: line for line, text in _texts(path) for name in NAMES.findall(text)}
    unknown = {
        name: line
        for name, line in found.items()
        if name not in SPEC_OF_SAMPLE and name not in SERIES_BY_NAME
    }

    assert unknown == {}


def test_the_search_finds_names() -> None:
    read = {n for path in FILES for _, text in _texts(path) for n in NAMES.findall(text)}

    assert len(read & set(SERIES_BY_NAME)) > 60


def test_no_name_is_there_twice_and_no_sample_belongs_to_two_series() -> None:
    assert len(SERIES_BY_NAME) == len(SERIES)
    assert len(SPEC_OF_SAMPLE) == sum(len(spec.sample_names) for spec in SERIES)


@pytest.mark.parametrize("spec", SERIES, ids=lambda spec: spec.name)
def test_a_row_says_type_unit_meaning_and_what_absence_means(spec) -> None:
    assert isinstance(spec.type, MetricType)
    assert isinstance(spec.unit, Unit)
    assert spec.help
    assert spec.absence
    assert len(set(spec.labels)) == len(spec.labels)


@pytest.mark.parametrize("spec", OWN, ids=lambda spec: spec.name)
def test_a_name_of_ours_says_its_type_and_unit(spec) -> None:
    assert spec.name.startswith("phasewise_")
    assert spec.name.endswith("_total") == (spec.type is MetricType.COUNTER)
    assert spec.name.endswith("_seconds") == (spec.unit is Unit.SECONDS)
    assert spec.name.endswith("_ratio") == (spec.unit is Unit.RATIO)
    assert spec.name.endswith("_info") == (spec.unit is Unit.INFO)
    assert spec.name.endswith("_per_second") == spec.unit.value.endswith("/second")
    assert spec.name.endswith("_replicas") <= (spec.unit is Unit.REPLICAS)


def test_recorded_and_own_series_have_bounded_labels_only() -> None:
    """No replica, endpoint, request or text: what grows with a tier stays out of them."""
    labels = {
        *(label for spec in RECORDED for label in spec.labels),
        *(label for spec in OWN for label in spec.labels),
    }

    assert labels == {
        *("tier", "pool", "phase", "state", "resource", "bound", "share", "reason", "action"),
        *("source", "kind", "stage", "part", "version"),
        "model",  # with the pool at most 100 in one process
    }
