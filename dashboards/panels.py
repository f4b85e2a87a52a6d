"""Panels of expressions: the unit comes from the expressions, never from whoever writes the panel.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import replace

from dashboards.board import Color, Kind, Level, Panel, Query
from dashboards.queries import Expr
from serving.catalogue import Unit

GRAFANA_UNITS = {
    Unit.SECONDS: "s",
    Unit.RATIO: "percentunit",
    Unit.TOKENS: "si:tokens",
    Unit.BYTES: "bytes",
    Unit.REQUESTS: "si:requests",
    Unit.EVENTS: "none",
    Unit.REPLICAS: "none",
    Unit.TOKENS_PER_S: "si:tokens/s",
    Unit.BYTES_PER_S: "binBps",
    Unit.REQUESTS_PER_S: "reqps",
    Unit.EVENTS_PER_S: "ops",
    Unit.INFO: "none",
}
"""Grafana's identifiers of our units; `si:` puts k, M and G before a word of ours."""

PLAIN = (Level(above=None, color=Color.NEUTRAL),)
"""No value of it is good or bad by itself."""


def bad_above(warning: float, bad: float) -> tuple[Level, ...]:
    """Green below `warning`, red from `bad` on."""
    return (
        Level(above=None, color=Color.GOOD),
        Level(above=warning, color=Color.WARNING),
        Level(above=bad, color=Color.BAD),
    )


def bad_below(bad: float, warning: float) -> tuple[Level, ...]:
    """Red below `bad`, green from `warning` on."""
    return (
        Level(above=None, color=Color.BAD),
        Level(above=bad, color=Color.WARNING),
        Level(above=warning, color=Color.GOOD),
    )


def lines(
    title: str,
    description: str,
    *shown: tuple[Expr, str],
    runbook: str,
    levels: tuple[Level, ...] = PLAIN,
) -> Panel:
    """Series over time; each is an expression and its legend, all of one unit."""
    units = {expr.unit for expr, _ in shown}
    if len(units) != 1:
        raise ValueError(f"{title}: one axis has one unit, not {sorted(units)}")
    (unit,) = units
    return Panel(
        title=title,
        description=description,
        unit=GRAFANA_UNITS[unit],
        queries=tuple(Query(expr=expr.text, legend=legend) for expr, legend in shown),
        runbook=runbook,
        levels=levels,
        minimum=0,
        maximum=1 if unit is Unit.RATIO else None,
    )


def number(
    title: str,
    description: str,
    shown: tuple[Expr, str],
    *,
    runbook: str,
    levels: tuple[Level, ...] = PLAIN,
) -> Panel:
    """One value as it is now, in large."""
    drawn = lines(title, description, shown, runbook=runbook, levels=levels)
    return replace(drawn, kind=Kind.NUMBER, minimum=None, maximum=None, width=6, height=4)


def steps(panel: Panel) -> Panel:
    """The same for counts that jump and never slope."""
    return replace(panel, stepped=True, decimals=0)


def states(panel: Panel) -> Panel:
    """The same as bars for as long as there is a value."""
    return replace(panel, kind=Kind.STATES, minimum=None, maximum=None, width=24)


def unbounded(panel: Panel) -> Panel:
    """The same for a ratio that may be larger than 1, as a plain number."""
    return replace(panel, maximum=None, unit="none", decimals=2)
