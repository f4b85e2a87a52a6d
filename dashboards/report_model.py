"""What a report consists of, as plain values: facts, tables, charts and notes.

Text is plain text: whoever renders it escapes it. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["tokens_per_s", "replicas", "share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells in words. The first `word_columns` are text, the others numbers.

    `emphasised` are the indices of the rows that the report is about; `note` explains marks.
    """

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    word_columns: int = 1
    emphasised: tuple[int, ...] = ()
    note: str | None = None

    def __post_init__(self) -> None:
        if any(len(row) != len(self.headings) for row in self.rows):
            raise ValueError(f"{self.caption}: every row needs {len(self.headings)} cells")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One step line: (minute, value from then on). `None` is a gap: unknown is not zero.

    The same `colour` is the same thing in every chart; 0 is what the report is about.
    """

    name: str
    points: tuple[tuple[float, float | None], ...]
    colour: int
    dotted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Step lines over minutes 0 to `end_minute`. `look` says in a sentence what to look for."""

    title: str
    look: str
    y_title: str
    unit: Unit
    lines: tuple[Line, ...]
    end_minute: float
    numbers: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What one policy costs and achieves."""

    name: str
    hours: float
    attainment_ratio: float
    colour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PointChart:
    """Accelerator-hours against attainment; `target_ratio` is drawn across."""

    title: str
    look: str
    points: tuple[Point, ...]
    target_ratio: float
    numbers: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole page. `facts` are (label, value), `notes` (heading, text), `details` fold away."""

    title: str
    subtitle: str
    facts: tuple[tuple[str, str], ...]
    comparison: Table
    charts: tuple[LineChart | PointChart, ...]
    notes: tuple[tuple[str, str], ...]
    details: tuple[Table, ...] = ()
