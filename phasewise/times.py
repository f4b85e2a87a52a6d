"""A time as it is said to a person. Pure: no clock, no network, no log."""

from __future__ import annotations

from datetime import UTC, datetime

_WALL_CLOCK_FROM_S = 1e9  # no simulation lasts thirty years


def when(at_s: float) -> str:
    """A wall-clock time in UTC, or the minute of a time that begins at zero."""
    if at_s > _WALL_CLOCK_FROM_S:
        return datetime.fromtimestamp(at_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"minute {at_s / 60.0:.1f}"
