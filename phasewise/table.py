"""The comparison as a table for a terminal. Decides what is shown, not what is true."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from phasewise.scoring import Score

WORD_COLUMNS = 2  # the first ones; the others hold numbers


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} s" if value >= 1.0 else f"{value * 1000:.0f} ms"


def _knob(row: Score) -> str:
    if row.sizes:
        return ", ".join(f"{number} {phase}" for phase, number in row.sizes.items())
    if row.headroom_ratio is not None:
        return f"headroom {row.headroom_ratio:+.0%}"
    return "learns"


def headings(rows: Sequence[Score]) -> tuple[str, ...]:
    """The columns, of which the first two hold words and the others numbers."""
    return (
        *("policy", "setting", "attainment", "good requests"),
        *(f"{phase} hours" for phase in rows[0].accelerator_hours),
        *("hours", "TTFT p50 / p99", "ITL p50 / p99", "actions", "reversals"),
    )


def cells(row: Score) -> tuple[str, ...]:
    """A row in words, a cell for each heading."""
    unmatched = "" if row.matched in (None, True) else " (*)"
    return (
        row.policy,
        _knob(row) + unmatched,
        f"{row.attainment_ratio:.2%}",
        f"{row.good_requests:,}",
        *(f"{hours:.2f}" for hours in row.accelerator_hours.values()),
        f"{row.total_hours:.2f}",
        f"{_seconds(row.ttft_s['p50'])} / {_seconds(row.ttft_s['p99'])}",
        f"{_seconds(row.itl_s['p50'])} / {_seconds(row.itl_s['p99'])}",
        str(row.scaling_actions),
        str(row.reversals),
    )


def unmatched_note(rows: Sequence[Score]) -> str | None:
    """What the star at a setting means; `None` if there is none."""
    if all(row.matched is not False for row in rows):
        return None
    ours = any(row.policy == "phasewise" for row in rows)
    enough = "as much as phasewise" if ours else "enough"
    return f"(*) none of the points played attains {enough}; the best one"


def unfinished_note(rows: Sequence[Score]) -> str | None:
    """Which policies left requests unfinished, and how many; `None` if none did."""
    left = [
        f"{row.policy} {row.unfinished_requests:,} of {row.requests:,}"
        for row in rows
        if row.unfinished_requests
    ]
    if not left:
        return None
    return f"requests that did not finish, which count as missed: {', '.join(left)}"


def notes(rows: Sequence[Score]) -> str | None:
    """What must be known to read the table; `None` if nothing."""
    found = [note for note in (unmatched_note(rows), unfinished_note(rows)) if note is not None]
    return "; ".join(found) or None


def comparison_table(rows: Sequence[Score], *, title: str) -> Table:
    """One row for each policy; hours are accelerator-hours, starting and draining included."""
    table = Table(title=title, title_justify="left", caption_justify="left")
    for index, heading in enumerate(headings(rows)):
        table.add_column(heading, justify="left" if index < WORD_COLUMNS else "right")
    for row in rows:
        table.add_row(*cells(row), style="bold" if row.policy == "phasewise" else None)
    table.caption = notes(rows)
    return table
