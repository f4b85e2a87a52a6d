"""The recording rules: plain PromQL over series of the catalogue, without the usual mistakes."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from alerts.recording import off_bounds, recording_groups, render_recording
from phasewise.render_alerts import render
from phasewise.rendering import RenderRequest, rules_record, tiers_of
from serving.catalogue import MetricType, Owner
from serving.recorded import (
    EPP_BOUNDS_S,
    RECORDED,
    RECORDED_BY_NAME,
    WITHIN_EXAMPLE,
    WithinSlo,
    expression,
)
from serving.schema.tier import demo_tier_path
from serving.series import SPEC_OF_SAMPLE
from serving.simulation.telemetry import EPP_TPOT_BOUNDS_S, EPP_TTFT_BOUNDS_S

EXPRS = {spec.name: expression(spec, tier="demo", slo=WITHIN_EXAMPLE) for spec in RECORDED}
OF_TARGET = {"tier", "pool", "phase", "instance", "le"}


def walk(node: Any) -> Iterator[Any]:
    """Every node of a parsed expression."""
    yield node
    for name in ("lhs", "rhs", "expr", "vector_selector"):
        child = getattr(node, name, None)
        if child is not None:
            yield from walk(child)
    for child in getattr(node, "args", None) or ():
        yield from walk(child)


def nodes(expr: str) -> list[Any]:
    return list(walk(promql_parser.parse(expr)))


def selected(node: Any, function: str = "") -> Iterator[tuple[str, str]]:
    """Every series of an expression with the innermost function around it."""
    if kind(node) == "Call":
        function = node.func.name
    if kind(node) == "VectorSelector":
        yield node.name, function
    for name in ("lhs", "rhs", "expr", "vector_selector"):
        child = getattr(node, name, None)
        if child is not None:
            yield from selected(child, function)
    for child in getattr(node, "args", None) or ():
        yield from selected(child, function)


def kind(node: Any) -> str:
    return type(node).__name__


def unwrapped(node: Any) -> Any:
    return unwrapped(node.expr) if kind(node) == "ParenExpr" else node


each = pytest.mark.parametrize("expr", EXPRS.values(), ids=EXPRS)


@each
def test_it_reads_only_native_series_of_the_catalogue(expr: str) -> None:
    names = [node.name for node in nodes(expr) if kind(node) == "VectorSelector"]

    assert names
    for name in names:
        assert SPEC_OF_SAMPLE[name].owner in (Owner.VLLM, Owner.EPP)


@each
def test_only_counters_have_rates_and_no_counter_is_summed_bare(expr: str) -> None:
    """The parts of a histogram count too."""
    for name, function in selected(promql_parser.parse(expr)):
        is_gauge = SPEC_OF_SAMPLE[name].type is MetricType.GAUGE
        assert (function in ("rate", "increase")) != is_gauge, name


@each
def test_every_division_is_guarded_against_nothing_below(expr: str) -> None:
    for node in nodes(expr):
        if kind(node) == "BinaryExpr" and str(node.op) == "/":
            below = unwrapped(node.rhs)
            assert kind(below) == "BinaryExpr"
            assert str(below.op) == ">"
            assert str(below.rhs) == str(promql_parser.parse("0"))


@each
def test_it_selects_by_labels_that_the_series_have(expr: str) -> None:
    for node in nodes(expr):
        if kind(node) == "VectorSelector":
            used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", str(node.matchers)))
            assert used <= {*SPEC_OF_SAMPLE[node.name].labels, *OF_TARGET}


@pytest.mark.parametrize("spec", RECORDED, ids=lambda spec: spec.name)
def test_its_labels_are_those_that_it_says(spec: Any) -> None:
    by = ", ".join(spec.labels)
    alternatives = re.split(r" or (?=(?:sum|max|count|\())", EXPRS[spec.name])

    assert all(f"by ({by})" in one for one in alternatives)
    assert f"by ({by})" in EXPRS[spec.name]
    foreign = set(re.findall(r"by \(([^)]*)\)", EXPRS[spec.name])) - {by, f"{by}, instance"}
    assert foreign == set()


@pytest.mark.parametrize("spec", RECORDED, ids=lambda spec: spec.name)
def test_a_name_says_its_unit_and_how_it_was_made(spec: Any) -> None:
    level, metric, how = spec.name.split(":")

    assert level == "phase"
    assert (spec.unit.value == "seconds") == metric.endswith("_seconds")
    assert how.startswith("ratio") == (spec.unit.value == "ratio")
    assert how.startswith("rate") == spec.unit.value.endswith("/second")
    assert spec.help
    assert spec.absence


def test_a_threshold_on_a_bound_is_exact_and_one_between_two_is_interpolated() -> None:
    exact = EXPRS["phase:user_ttft_within_slo:ratio1m"]
    between = EXPRS["phase:user_tpot_within_slo:ratio1m"]

    assert 'le=~"2(\\\\.0)?"' in exact
    assert "0.5 * sum" in between
    assert 'le="0.04"' in between
    assert 'le="0.06"' in between
    assert len(off_bounds("demo", WITHIN_EXAMPLE)) == 1


@pytest.mark.parametrize(
    ("ttft_s", "part"),
    [(0.001, "0.2 * sum"), (0.005, 'le="0.005"'), (3600.0, 'le=~"3600')],
)
def test_thresholds_at_the_ends_of_the_bounds(ttft_s: float, part: str) -> None:
    spec = RECORDED_BY_NAME["phase:user_ttft_within_slo:ratio1m"]

    assert part in expression(spec, tier="demo", slo=replace(WITHIN_EXAMPLE, ttft_s=ttft_s))


def test_above_the_last_bound_there_is_no_rule_and_the_file_says_so() -> None:
    slo = replace(WITHIN_EXAMPLE, ttft_s=4000.0)
    rules = [
        rule["record"] for group in recording_groups([("demo", slo)]) for rule in group["rules"]
    ]

    assert set(RECORDED_BY_NAME) - set(rules) == {"phase:user_ttft_within_slo:ratio1m"}
    assert "is not recorded" in render_recording([("demo", slo)])


def test_the_bounds_are_those_of_the_picker() -> None:
    assert EPP_BOUNDS_S == {WithinSlo.TTFT: EPP_TTFT_BOUNDS_S, WithinSlo.TPOT: EPP_TPOT_BOUNDS_S}


def test_each_series_of_a_tier_has_one_rule_however_many_tiers_there_are() -> None:
    text = render_recording([("one", WITHIN_EXAMPLE), ("two", WITHIN_EXAMPLE)])
    groups = yaml.safe_load(text)["groups"]
    pairs = [(rule["record"], rule["expr"]) for group in groups for rule in group["rules"]]
    shared = [name for name, _ in pairs if RECORDED_BY_NAME[name].within is None]

    assert len(set(pairs)) == len(pairs)
    assert len(shared) == len(set(shared))
    assert {name for name, _ in pairs} == set(RECORDED_BY_NAME)
    assert len({group["name"] for group in groups}) == len(groups) == 3


def test_promtool_accepts_the_file(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    file = tmp_path / "recorded.yaml"
    file.write_text(render_recording([("demo", WITHIN_EXAMPLE)]))
    done = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert f"{len(RECORDED)} rules found" in done.stdout


def test_no_rules_are_rendered_where_phasewise_supplies_the_series(tmp_path: Path) -> None:
    settings = {
        "tiers": [{"file": str(demo_tier_path())}],
        "source": {"httpSd": "http://127.0.0.1:8000/sd"},
    }
    names = {}
    for supplier in ("rules", "phasewise"):
        config = tmp_path / f"{supplier}.yaml"
        config.write_text(yaml.safe_dump({**settings, "recorded": {"supplier": supplier}}))
        asked = RenderRequest(tiers=tiers_of(config=config), rules_record=rules_record(config))
        names[supplier] = set(render(asked))

    assert names["rules"] - names["phasewise"] == {"phasewise-recorded.yaml"}
    assert rules_record(None)
