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
from serving.recorded import RECORDED, RECORDED_BY_NAME, WithinSlo
from serving.recorded_within import (
    CLOSE_RATIO,
    DECODE_TPOT_BOUNDS_S,
    EPP_BOUNDS_S,
    WITHIN_EXAMPLE,
    expression,
    settled,
)
from serving.schema.tier import demo_tier_path
from serving.series import SPEC_OF_SAMPLE
from serving.simulation.telemetry import EPP_TPOT_BOUNDS_S, EPP_TTFT_BOUNDS_S, ITL_BOUNDS_S

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


TTFT = RECORDED_BY_NAME["phase:user_ttft_within_slo:ratio1m"]
TPOT = RECORDED_BY_NAME["phase:user_tpot_within_slo:ratio1m"]


def asked(spec: Any, **slo: float) -> str:
    return expression(spec, tier="demo", slo=replace(WITHIN_EXAMPLE, **slo))


def test_a_first_token_s_threshold_on_a_bound_is_exact() -> None:
    assert set(re.findall(r"le=[^}]*", asked(TTFT, ttft_s=2.0))) == {'le=~"2(\\\\.0)?"'}
    assert " and " not in asked(TTFT, ttft_s=2.0)
    assert off_bounds("demo", replace(WITHIN_EXAMPLE, itl_s=0.04)) == []


@pytest.mark.parametrize(
    ("ttft_s", "parts"),
    [
        (2.5, ['le=~"2(', 'le=~"3(']),
        (0.001, ["0 * sum", 'le="0.005"']),
        (4000.0, ['le=~"3600(', "request_ttft_seconds_count"]),
    ],
)
def test_between_two_bounds_it_is_the_lower_share_while_they_are_close(
    ttft_s: float, parts: list[str]
) -> None:
    expr = asked(TTFT, ttft_s=ttft_s)

    assert all(part in expr for part in parts)
    assert expr.count(f"<= {CLOSE_RATIO:g}") == expr.count(" and ") == expr.count(" or ") + 1
    (said,) = off_bounds("demo", replace(WITHIN_EXAMPLE, ttft_s=ttft_s, itl_s=0.04))
    assert "nearest bucket bounds" in said


@pytest.mark.parametrize(
    ("itl_s", "picker", "decode", "said"),
    [
        pytest.param(0.1, True, True, None, id="a-bound-of-both"),
        pytest.param(0.04, True, False, None, id="of-the-picker"),
        pytest.param(0.05, False, True, "decode's clock", id="of-decode"),
    ],
)
def test_a_gap_s_share_is_the_picker_s_and_else_decode_s(
    itl_s: float, picker: bool, decode: bool, said: str | None
) -> None:
    expr = asked(TPOT, itl_s=itl_s)
    notes = off_bounds("demo", replace(WITHIN_EXAMPLE, itl_s=itl_s))

    assert ("llm_d_epp_request_streaming_tpot_seconds_bucket" in expr) == picker
    assert ("vllm:request_time_per_output_token_seconds_bucket" in expr) == decode
    assert expr.count('phase=~"decode|both"') == 6 * decode  # prefill's gaps are all 0
    assert len(notes) == (said is not None)
    assert all(said is not None and said in note for note in notes)


def test_a_gap_on_no_bound_has_no_rule_and_the_file_says_so() -> None:
    slo = replace(WITHIN_EXAMPLE, itl_s=0.045)
    rules = [
        rule["record"] for group in recording_groups([("demo", slo)]) for rule in group["rules"]
    ]

    assert set(RECORDED_BY_NAME) - set(rules) == {"phase:user_tpot_within_slo:ratio1m"}
    assert "is not recorded: 0.045 s is no bucket bound" in render_recording([("demo", slo)])
    assert "(nearest 0.04 s and 0.05 s)" in off_bounds("demo", slo)[0]


@pytest.mark.parametrize(
    ("least", "most", "value"),
    [(0.9, 0.9, 0.9), (0.94, 0.96, 0.94), (0.93, 0.96, None), (0.0, 1.0, None), (0.0, 0.01, 0.0)],
)
def test_a_share_between_two_is_the_lower_one_if_they_are_close(
    least: float, most: float, value: float | None
) -> None:
    assert settled(least, most) == value


def test_the_bounds_are_those_of_the_picker_and_of_decode() -> None:
    assert EPP_BOUNDS_S == {WithinSlo.TTFT: EPP_TTFT_BOUNDS_S, WithinSlo.TPOT: EPP_TPOT_BOUNDS_S}
    assert DECODE_TPOT_BOUNDS_S == ITL_BOUNDS_S


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
