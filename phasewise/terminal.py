"""The terminal that tables are drawn on."""

from __future__ import annotations

from rich.console import Console

WIDTH_WITHOUT_TERMINAL = 160


def wide_console() -> Console:
    """The terminal, or one wide enough for a table where the output is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH_WITHOUT_TERMINAL)
