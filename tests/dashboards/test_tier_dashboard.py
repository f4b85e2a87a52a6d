"""The *Tier* dashboard: valid by Grafana's own schema, and every panel says what to make of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from alerts.rules import ALERTS
from dashboards.board import Color, Kind, Panel
from dashboards.grafana import clean, dashboard
from dashboards.panels import GRAFANA_UNITS, lines, number
from dashboards.queries import Expr, budget_left, gauge, growth, over, rate, summed
from dashboards.tier import board
from serving.catalogue import Unit
from serving.series import SPEC_OF_SAMPLE

SCHEMA = Path(__file__).parents[1] / "fixtures" / "grafana" / "dashboard.jsonschema.json"
BOARD = board()
PANELS = list(BOARD.panels())
JSON = dashboard(BOARD, runbooks="https://runbooks.example")
DRAWN: list[dict[str, Any]] = [panel for panel in JSON["panels"] if panel["type"] != "row"]


def _named(panel: Panel) -> str:
    return panel.title


def _nodes(node: object) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for part in node.values():
            yield from _nodes(part)
    elif isinstance(node, list):
        for part in node:
            yield from _nodes(part)


def test_it_is_without_fault_by_grafanas_own_schema() -> None:
    schema = jsonschema.Draft7Validator(json.loads(SCHEMA.read_text()))

    assert [f"{list(e.path)}: {e.message[:200]}" for e in schema.iter_errors(JSON)] == []
    assert JSON["schemaVersion"] == 39


def test_the_schema_refuses_a_dashboard_as_grafanalib_writes_it() -> None:
    schema = jsonschema.Draft7Validator(json.loads(SCHEMA.read_text()))

    assert not schema.is_valid({**JSON, "__inputs": [], "rows": []})


def test_every_panel_of_the_board_is_drawn_once_with_an_id_and_a_place_of_its_own() -> None:
    ids = [panel["id"] for panel in JSON["panels"]]
    cells = [
        (x, y)
        for panel in JSON["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert [panel["title"] for panel in DRAWN] == [panel.title for panel in PANELS]
    assert len(set(ids)) == len(ids)
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_titles_are_told_apart() -> None:
    titles = [panel.title for panel in PANELS]

    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("panel", PANELS, ids=_named)
def test_a_panel_says_what_is_normal_and_what_to_do(panel: Panel) -> None:
    assert re.search(r"Normal: ", panel.description)
    assert len(panel.description) > 100
    assert "  " not in panel.description
    assert panel.title[0].isupper()
    assert not panel.title.endswith(".")
    assert panel.unit in {*GRAFANA_UNITS.values()}
    assert panel.runbook in {alert.name for alert in ALERTS}


@pytest.mark.parametrize("panel", PANELS, ids=_named)
def test_the_colours_of_a_panel_begin_at_the_lowest_value_and_rise(panel: Panel) -> None:
    first, *others = [level.above for level in panel.levels]

    assert first is None
    assert others == sorted(level for level in others if level is not None)
    assert len(panel.levels) == 1 or {level.color for level in panel.levels} >= {Color.BAD}


@pytest.mark.parametrize("panel", PANELS, ids=_named)
def test_a_legend_names_only_labels_that_its_series_keep(panel: Panel) -> None:
    for query in panel.queries:
        kept = re.match(r"(?:\w+ by \(([^)]*)\))?", query.expr)
        assert kept is not None
        labels = set(re.findall(r"{{(\w+)}}", query.legend))
        assert labels <= set((kept.group(1) or "").split(", ")), query


def test_no_data_source_is_named_and_every_target_has_one() -> None:
    found = [node["datasource"] for node in _nodes(JSON) if "datasource" in node]
    targets = [target for panel in DRAWN for target in panel["targets"]]

    assert {source["uid"] for source in found} == {"${datasource}"}
    assert all("datasource" in target for target in targets)
    assert JSON["templating"]["list"][0]["type"] == "datasource"


def test_a_person_chooses_the_data_source_tier_phase_and_pool() -> None:
    choices = {choice["name"]: choice for choice in JSON["templating"]["list"]}

    assert list(choices) == ["datasource", "tier", "phase", "pool"]
    assert all(choices[name]["current"]["value"] == ["$__all"] for name in ("phase", "pool"))
    asked = [re.search(r"label_values\(([\w:]+)", choices[n]["query"]) for n in ("tier", "pool")]
    assert all(found is not None and found.group(1) in SPEC_OF_SAMPLE for found in asked)


def test_every_panel_links_to_the_runbook_that_helps_with_it() -> None:
    links = [panel["links"][0]["url"] for panel in DRAWN]

    assert links == [f"https://runbooks.example/{panel.runbook}.md" for panel in PANELS]


def test_unknown_is_never_drawn_as_zero_or_joined_over() -> None:
    drawn = [panel["fieldConfig"]["defaults"] for panel in DRAWN]

    assert {one["custom"].get("spanNulls", False) for one in drawn} == {False}
    assert {
        panel["fieldConfig"]["defaults"]["noValue"] for panel in DRAWN if panel["type"] == "stat"
    } == {"unknown"}


def test_the_null_that_begins_a_list_of_levels_is_kept_and_others_go() -> None:
    level = {"value": None, "color": "green"}

    assert clean({"steps": [level], "cacheTimeout": None}) == {"steps": [level]}


def test_the_board_is_the_same_every_time() -> None:
    assert dashboard(board(), runbooks="https://runbooks.example") == JSON


def test_an_axis_with_two_units_is_refused() -> None:
    with pytest.raises(ValueError, match="one axis has one unit"):
        lines(
            "Both",
            "",
            (gauge("phasewise_demand_ratio"), ""),
            (gauge("phasewise_replicas"), ""),
            runbook="",
        )


def test_the_unit_of_a_panel_is_that_of_its_expression() -> None:
    shown = number("Changes", "", (growth("phasewise_decisions_total", "pool"), ""), runbook="")

    assert shown.kind is Kind.NUMBER
    assert shown.unit == GRAFANA_UNITS[Unit.EVENTS]
    assert rate("phasewise_tick_duration_seconds_count").unit is Unit.EVENTS_PER_S
    assert over(gauge("phasewise_replicas"), gauge("phasewise_replicas")).unit is Unit.RATIO


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda: gauge("phasewise_decisions_total"), id="a counter as a gauge"),
        pytest.param(lambda: rate("phasewise_replicas"), id="a gauge as a counter"),
        pytest.param(lambda: growth("phasewise_replicas"), id="growth of a gauge"),
        pytest.param(lambda: summed(gauge("phase:kv_used:ratio_max")), id="a sum of shares"),
        pytest.param(lambda: summed(Expr("x", Unit.SECONDS)), id="a sum of ages"),
    ],
)
def test_an_expression_that_misleads_cannot_be_made(wrong: Any) -> None:
    with pytest.raises(ValueError, match="is not"):
        wrong()


@pytest.mark.parametrize("name", ["vllm:num_requests_running", "phase:no_such:sum"])
def test_a_native_or_unknown_name_cannot_be_asked_for(name: str) -> None:
    with pytest.raises(KeyError):
        gauge(name)


def test_an_error_budget_is_one_less_the_misses_over_those_allowed() -> None:
    expr = budget_left("phase:user_ttft_within_slo:ratio1m", "phasewise_slo_attainment_ratio")

    assert expr.unit is Unit.RATIO
    assert expr.text.startswith("1 - (1 - sum_over_time(")
    assert expr.text.endswith(
        '/ ((1 - max by (tier) (phasewise_slo_attainment_ratio{tier="$tier"})) > 0)'
    )
