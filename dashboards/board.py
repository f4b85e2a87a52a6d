"""A dashboard as plain data: what it asks, in which words, and how the answers are shown.

Knows nothing of Grafana's JSON; `dashboards.grafana` turns it into that.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How a panel shows its series: lines over time, one number now, or states over time."""

    LINES = "lines"
    NUMBER = "number"
    STATES = "states"


class Color(StrEnum):
    """The colours of a level. Neutral ones say nothing about good or bad."""

    NEUTRAL = "blue"
    GOOD = "green"
    WARNING = "orange"
    BAD = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """From `above` on (`None`: from the lowest value on) the panel has this colour."""

    above: float | None
    color: Color


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One PromQL expression and what its series are called: labels stand in double braces."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. `unit` is Grafana's name of it, `runbook` the alert whose runbook helps here.

    `description` says what the panel shows, what is normal, and what to do when it is not.
    The width is of 24 columns.
    """

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    runbook: str
    kind: Kind = Kind.LINES
    levels: tuple[Level, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    decimals: int | None = None
    stacked: bool = False
    stepped: bool = False
    width: int = 12
    height: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """What a person chooses at the top: a value of `label` of the series `of`, or several."""

    name: str
    title: str
    of: str
    label: str
    many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A vertical line through every panel wherever the query has an answer."""

    title: str
    query: Query
    color: Color = Color.NEUTRAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard. `uid` is part of its address and never changes."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    marks: tuple[Mark, ...] = ()
    tags: tuple[str, ...] = ("phasewise",)

    def panels(self) -> Iterator[Panel]:
        """Every panel, in reading order."""
        for row in self.rows:
            yield from row.panels

    def expressions(self) -> Iterator[str]:
        """Every PromQL expression of the panels and marks."""
        for panel in self.panels():
            yield from (query.expr for query in panel.queries)
        yield from (mark.query.expr for mark in self.marks)
