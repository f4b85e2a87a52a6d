"""`phasewise explain`: one decision in the terminal, the same numbers as in the console.

Draws an explanation's JSON; computes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from phasewise.times import when
from phasewise.watching import Watched

UNKNOWN = "unknown"
_COUNTED = ("requests", "replicas", "tokens")
_BYTES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def number(value: object, places: int = 2) -> str:
    """A number as it is said to a person; what is not known says so.

    A float has the fewer decimals the larger it is: three digits or so are said.
    """
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        fewer = 2 if abs(value) >= 100.0 else 1 if abs(value) >= 10.0 else 0
        return f"{value:,.{max(0, places - fewer)}f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def share(value: float | None, places: int = 1) -> str:
    """A ratio in percent."""
    return UNKNOWN if value is None else f"{value:.{places}%}"


def milliseconds(value_s: float | None) -> str:
    """A short time."""
    return UNKNOWN if value_s is None else f"{value_s * 1000:.1f} ms"


def measured(value: float | None, unit: str) -> str:
    """An input with its unit; ratios in percent, short times in milliseconds."""
    if value is None:
        return UNKNOWN
    if unit == "ratio":
        return share(value)
    if unit == "s":
        return milliseconds(value) if value < 1.0 else f"{value:.2f} s"
    if unit == "bytes/s":
        scale, prefix = next((s for s in _BYTES if value >= s[0]), (1.0, ""))
        return f"{number(value / scale)} {prefix}B/s"
    whole = float(value).is_integer() and unit in _COUNTED
    return f"{number(int(value) if whole else value)} {unit}".strip()


def _table(*columns: str, right: Iterable[int] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    numbers = set(right)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index in numbers else "left", overflow="fold")
    return table


def _inputs(rows: Iterable[Mapping[str, Any]]) -> Table:
    table = _table("input", "value", "age", "seen of replicas", right=(1, 2, 3))
    for row in rows:
        age_s, coverage = row["age_s"], row["coverage_ratio"]
        table.add_row(
            row["name"],
            measured(row["value"], row["unit"]),
            "" if age_s is None else f"{age_s:.0f} s",
            "" if coverage is None else share(coverage, 0),
        )
    return table


def _needs(rows: Iterable[Mapping[str, Any]]) -> Table:
    table = _table(
        "resource",
        "replicas",
        "exact",
        "demand /s",
        "one replica /s",
        "because",
        right=(1, 2, 3, 4),
    )
    for row in rows:
        table.add_row(
            f"{row['bottleneck']}{' (binds)' if row['binds'] else ''}",
            number(row["replicas"]),
            number(row["replicas_exact"]),
            number(row["demand_per_s"]),
            number(row["replica_capacity_per_s"]),
            row["words"],
        )
    return table


def _steps(rows: Iterable[Mapping[str, Any]]) -> Table:
    table = _table("step", "from", "to", "reason", "because", right=(1, 2))
    for row in rows:
        table.add_row(
            row["name"], number(row["before"]), number(row["after"]), row["reason"], row["words"]
        )
    return table


def _expected(row: Mapping[str, Any]) -> str:
    if not row.get("is_proven", True):
        return "would be kept" if row["holds_slo"] else "would not"
    return "holds" if row["holds_slo"] else "does not hold"


def _sizes(rows: Iterable[Mapping[str, Any]], decided: int | None) -> Table:
    table = _table(
        "replicas",
        "used",
        "gap to expect",
        "late prompts",
        "SLO (model)",
        "in words",
        right=(0, 1, 2, 3),
    )
    for row in rows:
        gap_s, missed = row["step_s"], row["ttft_miss_ratio"]
        table.add_row(
            f"{row['replicas']}{' (decided)' if row['replicas'] == decided else ''}",
            share(row["utilisation_ratio"]),
            "" if gap_s is None else milliseconds(gap_s),
            "" if missed is None else share(missed, 2),
            _expected(row),
            row["words"],
        )
    return table


def _forecast(found: Mapping[str, Any]) -> Text:
    return Text(
        f"{found['forecaster']} at a lead of {found['lead_s']:.0f} s: "
        f"{number(found['level_per_s'])} tokens/s now (smoothed), "
        f"{number(found['expected_per_s'])} expected, "
        f"{number(found['upper_per_s'])} at the {share(found['upper_ratio'], 0)} quantile; held "
        f"against what came {found['errors_known']} times"
    )


def _starts(lead: Mapping[str, Any]) -> Table:
    """Start-ups by kind: how long, and in which stages; what was not observed is unknown."""
    stages = list(dict.fromkeys(stage for kind in lead["kinds"] for stage, _ in kind["stages_s"]))
    heads = ("start", "seen", "half within", "95 % within", *stages)
    table = _table(*heads, right=tuple(range(1, len(heads))))
    for kind in lead["kinds"]:
        took = dict(kind["stages_s"])
        name = kind["kind"] or "of unknown kind"
        table.add_row(
            f"{name} (counted)" if kind["kind"] == lead["counted"] else name,
            str(kind["starts"]),
            f"{kind['p50_s']:.1f} s",
            f"{kind['p95_s']:.1f} s",
            *(f"{took[stage]:.1f} s" if stage in took else UNKNOWN for stage in stages),
        )
    return table


def explanation(found: Mapping[str, Any]) -> RenderableType:
    """The whole explanation, verdict first."""
    title = Text(
        f"{found['tier']}/{found['pool']} ({found['phase']}), tick {found['epoch']} at "
        f"{when(found['at_s'])}: {number(found['before'])} -> {number(found['after'])} replicas",
        style="bold",
    )
    parts: list[RenderableType] = [title, Text(found["verdict"]), Text(found["what_would_change"])]
    sections: list[tuple[str, RenderableType | None]] = [
        ("Forecast", None if found["forecast"] is None else _forecast(found["forecast"])),
        ("Needs", _needs(found["needs"]) if found["needs"] else None),
        ("Steps", _steps(found["steps"]) if found["steps"] else None),
        (
            "One replica more or less",
            _sizes(found["counterfactuals"], found["after"]) if found["counterfactuals"] else None,
        ),
        ("Inputs", _inputs(found["inputs"])),
    ]
    lead = found.get("lead")
    if lead is not None and lead["kinds"]:
        sections.insert(1, ("Start-ups", _starts(lead)))
    for heading, body in sections:
        parts.append(Text(f"\n{heading}", style="bold"))
        parts.append(Padding(Text(UNKNOWN) if body is None else body, (0, 0, 0, 2)))
    return Group(*parts)


def print_explanations(
    source: Watched, pool: str | None, epoch: int | None, console: Console
) -> None:
    """One pool, or every pool of the tier."""
    for index, name in enumerate(_names(source, pool)):
        if index:
            console.rule()
        console.print(explanation(source.why(name, epoch)))


def print_json(
    source: Watched, pool: str | None, epoch: int | None, say: Callable[[str], None]
) -> None:
    """The same as JSON, one line for each pool."""
    for name in _names(source, pool):
        say(json.dumps(source.why(name, epoch)))


def _names(source: Watched, pool: str | None) -> list[str]:
    return [pool] if pool is not None else [str(row["name"]) for row in source.view()["pools"]]
