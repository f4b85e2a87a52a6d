"""A board as Grafana's JSON. The only file that knows grafanalib.

grafanalib writes keys of Grafana's early years and leaves others out; `clean` makes of that what
Grafana's own schema allows (schema version 39: Grafana 10.4 and newer migrate it upward).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from string import ascii_uppercase
from typing import Any

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from dashboards.board import Board, Kind, Level, Mark, Panel, Query, Row, Variable

SCHEMA_VERSION = 39
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
"""The data source that the reader chooses at the top; never one by name."""

_LEGACY = frozenset(
    {"__inputs", "rows", "hideControls", "sharedCrosshair", "style", "gnetId", "time_options"}
    | {"error", "height", "span", "minSpan", "tagsQuery", "tagValuesQuery", "useTags"}
    | {"intervalFactor", "step", "metric", "target"}
)
_REFRESH_ON_TIME_RANGE = 2
_SHARED_CROSSHAIR = 1


def dashboard(board: Board, *, runbooks: str) -> dict[str, Any]:
    """The JSON model of a board. `runbooks` is the address under which the runbooks lie."""
    made = core.Dashboard(
        title=board.title,
        uid=board.uid,
        description=board.description,
        tags=list(board.tags),
        editable=False,
        graphTooltip=_SHARED_CROSSHAIR,
        refresh="30s",
        schemaVersion=SCHEMA_VERSION,
        time=core.Time("now-3h", "now"),
        timezone="browser",
        templating=core.Templating(list=[_source_choice(), *map(variable, board.variables)]),
        annotations=core.Annotations(list=[_mark(mark) for mark in board.marks]),
        panels=list(_placed(board.rows, runbooks)),
    ).auto_panel_ids()
    plain = json.loads(json.dumps(made.to_json_data(), cls=DashboardEncoder))
    found: dict[str, Any] = clean(plain)
    return found


def row(title: str, *, y: int) -> Any:
    """A heading across the whole width."""
    return core.RowPanel(title=title, gridPos=core.GridPos(h=1, w=COLUMNS, x=0, y=y))


def panel(shown: Panel, *, x: int, y: int, runbooks: str) -> Any:
    """One panel at its place, by its kind."""
    make = {Kind.LINES: _lines, Kind.NUMBER: _stat, Kind.STATES: _states}[shown.kind]
    return make(
        shown,
        title=shown.title,
        description=shown.description,
        dataSource=DATASOURCE,
        targets=[
            _target(query, ref, instant=shown.kind is Kind.NUMBER)
            for query, ref in zip(shown.queries, ascii_uppercase, strict=False)
        ],
        gridPos=core.GridPos(h=shown.height, w=shown.width, x=x, y=y),
        links=[_runbook_link(shown.runbook, runbooks)],
        maxDataPoints=None,
        extraJson=_beyond_grafanalib(shown),
    )


def variable(choice: Variable) -> Any:
    """A choice among the values of a label."""
    many = {"includeAll": True, "multi": True, "allValue": ".*", "default": "$__all"}
    return core.Template(
        name=choice.name,
        label=choice.title,
        query=f"label_values({choice.of}, {choice.label})",
        dataSource=DATASOURCE,
        refresh=_REFRESH_ON_TIME_RANGE,
        **(many if choice.many else {}),
    )


def _source_choice() -> Any:
    return core.Template(name="datasource", label="Data source", type="datasource",
                         query="prometheus", default="default")  # fmt: skip


def _mark(mark: Mark) -> dict[str, Any]:
    return {
        "name": mark.title,
        "enable": True,
        "iconColor": mark.color.value,
        "datasource": DATASOURCE,
        "expr": mark.query.expr,
        "titleFormat": mark.query.legend,
    }


def _placed(rows: tuple[Row, ...], runbooks: str) -> Iterator[Any]:
    """Rows below one another; panels side by side until the next does not fit."""
    y = 0
    for each in rows:
        yield row(each.title, y=y)
        x, y, deepest = 0, y + 1, 0
        for shown in each.panels:
            if x + shown.width > COLUMNS:
                x, y, deepest = 0, y + deepest, 0
            yield panel(shown, x=x, y=y, runbooks=runbooks)
            x, deepest = x + shown.width, max(deepest, shown.height)
        y += deepest


def _target(query: Query, ref: str, *, instant: bool) -> Any:
    return core.Target(
        expr=query.expr,
        legendFormat=query.legend,
        refId=ref,
        datasource=DATASOURCE,
        instant=instant,
    )


def _lines(shown: Panel, **common: Any) -> Any:
    return core.TimeSeries(
        **common,
        unit=shown.unit,
        lineInterpolation="stepAfter" if shown.stepped else "linear",
        fillOpacity=40 if shown.stacked else 0,
        stacking={"mode": "normal", "group": "A"} if shown.stacked else {"mode": "none"},
        showPoints="never",
        tooltipMode="multi",
        tooltipSort="desc",
        thresholdsStyleMode="line" if len(shown.levels) > 1 else "off",
    )


def _stat(shown: Panel, **common: Any) -> Any:
    return core.Stat(
        **common,
        format=shown.unit,
        reduceCalc="lastNotNull",
        noValue="unknown",
        graphMode="none",
        colorMode="value",
        textMode="value_and_name" if len(shown.queries) > 1 else "auto",
    )


def _states(shown: Panel, **common: Any) -> Any:
    return core.StateTimeline(**common, showValue="never")


def _beyond_grafanalib(shown: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "unit": shown.unit,
        "min": shown.minimum,
        "max": shown.maximum,
        "decimals": shown.decimals,
        "thresholds": {"mode": "absolute", "steps": [_step(level) for level in shown.levels]},
    }
    if shown.kind is not Kind.LINES:
        defaults["color"] = {"mode": "thresholds"}
    with_legend = shown.kind is Kind.LINES
    legend = {} if shown.kind is Kind.NUMBER else {"legend": {"showLegend": with_legend}}
    return {"fieldConfig": {"defaults": defaults}, "options": legend}


def _step(level: Level) -> dict[str, Any]:
    return {"value": level.above, "color": level.color.value}


def _runbook_link(alert: str, runbooks: str) -> dict[str, Any]:
    return {
        "title": f"Runbook: {alert}",
        "type": "link",
        "icon": "doc",
        "tooltip": "What it means, how to confirm it and what to do",
        "url": f"{runbooks}/{alert}.md",
        "tags": [],
        "asDropdown": False,
        "targetBlank": True,
        "includeVars": False,
        "keepTime": False,
    }


def clean(node: Any) -> Any:
    """Grafana's early keys and everything that is null go; what the schema requires comes.

    The `null` that begins a list of thresholds stays: it is Grafana's word for "from the lowest".
    """
    if isinstance(node, list):
        return [clean(part) for part in node]
    if not isinstance(node, dict):
        return node
    is_step = node.keys() == {"value", "color"}
    dropped = set(_LEGACY)
    if "gridPos" in node:
        dropped.add("editable")
    if "expr" in node:
        dropped.add("query")
    kept = {
        key: clean(value)
        for key, value in node.items()
        if (value is not None or is_step) and key not in dropped
    }
    if "fieldConfig" in kept:
        kept["fieldConfig"].setdefault("overrides", [])
    if kept.get("type") == "row":
        kept = {k: kept[k] for k in ("type", "title", "collapsed", "panels", "id", "gridPos")}
    if "templating" in kept:
        kept["templating"]["list"] = [_clean_choice(v) for v in kept["templating"]["list"]]
    return kept


def _clean_choice(choice: dict[str, Any]) -> dict[str, Any]:
    current = choice.get("current", {})
    shown = {key: current[key] for key in ("selected", "text", "value") if key in current}
    kept = {k: v for k, v in choice.items() if k not in ("auto", "auto_min", "auto_count")}
    if "value" in shown:
        text = {"$__all": "All"}.get(shown["text"], shown["text"])
        as_list = kept.get("multi")
        kept["current"] = {
            "selected": True,
            "text": [text] if as_list else text,
            "value": [shown["value"]] if as_list else shown["value"],
        }
    else:
        kept.pop("current", None)
    return kept
