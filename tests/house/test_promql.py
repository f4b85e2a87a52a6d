"""Every expression of dashboards and alerts: it parses, its names are ours, and it misleads nobody.

Each rule was a bug in somebody's published dashboard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import promql_parser
import pytest

from alerts.rules import ALERTS
from dashboards.tier import board
from serving.catalogue import MetricType, Owner, Unit
from serving.series import SPEC_OF_SAMPLE

CHOICES = {
    "$__rate_interval": "1m",
    "$__range": "3h",
    "$tier": "demo",
    "$pool": ".*",
    "$phase": ".*",
}
GROWTH = {"rate", "irate", "increase"}


def filled_in(expr: str) -> str:
    """The expression with the choices of a dashboard made."""
    for name, value in CHOICES.items():
        expr = expr.replace(name, value)
    return expr


def _expressions() -> Iterator[Any]:
    shown = board()
    for panel in shown.panels():
        for query in panel.queries:
            yield pytest.param(query.expr, id=f"{panel.title}/{query.legend}")
    for mark in shown.marks:
        yield pytest.param(mark.query.expr, id=mark.title)
    for alert in ALERTS:
        yield pytest.param(alert.expr, id=alert.name)


EXPRESSIONS = list(_expressions())


def nodes(node: Any) -> list[Any]:
    """The expression and all parts of it."""
    found: list[Any] = []
    promql_parser.walk(node, lambda part: found.append(part))
    return found


def selectors(node: Any) -> list[Any]:
    """Every instant or range selector of an expression."""
    parts = nodes(node)
    plain = [p for p in parts if isinstance(p, promql_parser.VectorSelector)]
    ranged = [p.vector_selector for p in parts if isinstance(p, promql_parser.MatrixSelector)]
    return [*plain, *ranged]


def _names(node: Any) -> set[str]:
    return {str(selector.name) for selector in selectors(node)}


def foreign_names(tree: Any) -> list[str]:
    """Names that are in no catalogue, or are native to an engine."""
    ours = (Owner.RECORDED, Owner.PHASEWISE)
    return sorted(
        name
        for name in _names(tree)
        if name not in SPEC_OF_SAMPLE or SPEC_OF_SAMPLE[name].owner not in ours
    )


def foreign_labels(tree: Any) -> list[str]:
    """Matchers on labels that the series does not have."""
    return [
        f"{s.name}{{{matcher.name}}}"
        for s in selectors(tree)
        for matcher in s.matchers.matchers
        if s.name in SPEC_OF_SAMPLE and matcher.name not in SPEC_OF_SAMPLE[s.name].labels
    ]


def grown_gauges(tree: Any) -> list[str]:
    """`rate` and its kin over what is no counter."""
    calls = [p for p in nodes(tree) if isinstance(p, promql_parser.Call)]
    return [
        name
        for call in calls
        if call.func.name in GROWTH
        for name in _names(call)
        if SPEC_OF_SAMPLE[name].type is MetricType.GAUGE
    ]


def bare_counters(tree: Any) -> list[str]:
    """Counters that are read without `rate` or `increase`."""
    calls = [p for p in nodes(tree) if isinstance(p, promql_parser.Call)]
    grown = {n for call in calls if call.func.name in GROWTH for n in _names(call)}
    return sorted(
        name for name in _names(tree) - grown if SPEC_OF_SAMPLE[name].type is not MetricType.GAUGE
    )


def unguarded_divisions(tree: Any) -> list[str]:
    """Divisors that are not `(… > 0)`."""
    divisions = [
        p for p in nodes(tree) if isinstance(p, promql_parser.BinaryExpr) and str(p.op) == "/"
    ]
    return [str(p) for p in divisions if not re.search(r"> 0\)$", str(p.rhs))]


def summed_shares(tree: Any) -> list[str]:
    """`sum` over what does not add up: ratios, means, ages."""
    sums = [
        p
        for p in nodes(tree)
        if isinstance(p, promql_parser.AggregateExpr) and str(p.op) in ("sum", "avg")
    ]
    return [
        name
        for each in sums
        for name in _names(each.expr)
        if SPEC_OF_SAMPLE[name].type is MetricType.GAUGE
        and (SPEC_OF_SAMPLE[name].unit in (Unit.RATIO, Unit.SECONDS) or ":mean" in name)
    ]


def invented_zeros(tree: Any) -> list[str]:
    """Constants that would stand in for what is not known."""
    calls = [p for p in nodes(tree) if isinstance(p, promql_parser.Call)]
    return [str(call) for call in calls if call.func.name == "vector"]


RULES: tuple[Callable[[Any], list[str]], ...] = (
    foreign_names,
    foreign_labels,
    grown_gauges,
    bare_counters,
    unguarded_divisions,
    summed_shares,
    invented_zeros,
)


@pytest.mark.parametrize("expr", EXPRESSIONS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_an_expression_breaks_no_rule(expr: str, rule: Callable[[Any], list[str]]) -> None:
    assert rule(promql_parser.parse(filled_in(expr))) == []


@pytest.mark.parametrize(
    ("rule", "expr", "found"),
    [
        (foreign_names, "vllm:num_requests_running", ["vllm:num_requests_running"]),
        (foreign_names, "phase:no_such:sum", ["phase:no_such:sum"]),
        (
            foreign_labels,
            'phasewise_demand_ratio{pool="x"}',
            ["phasewise_demand_ratio{pool}"],
        ),
        (grown_gauges, "rate(phasewise_replicas[1m])", ["phasewise_replicas"]),
        (bare_counters, "sum(phasewise_decisions_total)", ["phasewise_decisions_total"]),
        (
            unguarded_divisions,
            "phasewise_replicas / phasewise_desired_replicas",
            ["phasewise_replicas / phasewise_desired_replicas"],
        ),
        (summed_shares, "sum(phase:kv_used:ratio_max)", ["phase:kv_used:ratio_max"]),
        (summed_shares, "avg(phase:itl_seconds:mean1m)", ["phase:itl_seconds:mean1m"]),
        (invented_zeros, "phasewise_replicas or vector(0)", ["vector(0)"]),
    ],
)
def test_each_rule_sees_what_it_is_there_for(
    rule: Callable[[Any], list[str]], expr: str, found: list[str]
) -> None:
    tree = promql_parser.parse(expr)
    # the parser writes selectors with their (empty) braces
    assert [text.replace("{}", "") for text in rule(tree)] == found
