"""How a local tier that comes up is shown: a line for each replica, or lines of events.

On a terminal the table is drawn again and again below the events, and is gone at the end; elsewhere
each event is one line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from serving.local.events import Event
from serving.local.replica import LocalReplica
from serving.local.states import LocalState
from serving.local.supervisor import LocalTier
from serving.types import StartStage

_DRAWN_EVERY_S = 0.5
_SAID_EVERY_S = 5.0


class Screen:
    """Shows one tier from before its start to its end."""

    def __init__(self, say: Callable[[str], None], *, console: Console | None) -> None:
        self._say = say
        self._live: Live | None = None
        if console is not None:
            self._live = Live(console=console, auto_refresh=False, transient=True)
        self._task: asyncio.Task[None] | None = None
        self._said_s = -_SAID_EVERY_S

    async def __aenter__(self) -> Screen:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.ending()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task

    def making(self, words: str, share: float | None) -> None:
        """How far the engine environment is; may come from another thread."""
        now_s = time.monotonic()
        if share not in (None, 1.0) and now_s - self._said_s < _SAID_EVERY_S:
            return
        self._said_s = now_s
        self._say(words if share is None else f"{words} ({share:.0%})")

    def event(self, event: Event) -> None:
        """Something has happened."""
        if self._live is None:
            self._say(_line(event))
        else:
            self._live.console.print(_line(event), highlight=False, markup=False)

    def follow(self, tier: LocalTier) -> None:
        """Draw the tier from now on, where there is something to draw on."""
        if self._live is not None:
            self._live.start()
            self._task = asyncio.create_task(self._draw(self._live, tier))

    def ending(self) -> None:
        """Draw no more."""
        if self._task is not None and self._live is not None:
            self._task.cancel()
            self._live.stop()

    async def _draw(self, live: Live, tier: LocalTier) -> None:
        while True:
            live.update(replica_table(tier), refresh=True)
            await asyncio.sleep(_DRAWN_EVERY_S)


def replica_table(tier: LocalTier) -> Table:
    """One row for each replica: where it is, and the seconds of each stage of its start."""
    replicas = tier.replicas()
    starts = {replica.engine: dict(replica.start.record().stages) for replica in replicas}
    stages = [s for s in StartStage if any(s in took_s for took_s in starts.values())]
    table = Table(
        title=_title(tier), title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False
    )
    for column in ("replica", "state"):
        table.add_column(column, overflow="fold")
    for column in (*(f"{stage} s" for stage in stages), "requests", "KV"):
        table.add_column(column, justify="right", no_wrap=True)
    for replica in replicas:
        took_s, figures = starts[replica.engine], replica.figures
        table.add_row(
            replica.name,
            Text(_state(replica)),
            *(f"{took_s[stage]:.1f}" if stage in took_s else "" for stage in stages),
            "" if figures.requests is None else f"{figures.requests:g}",
            "" if figures.kv_ratio is None else f"{figures.kv_ratio:.0%}",
        )
    return table


def screen(say: Callable[[str], None], *, headless: bool) -> Screen:
    """A screen for this terminal, or for none."""
    console = Console()
    return Screen(say, console=None if headless or not console.is_terminal else console)


def _title(tier: LocalTier) -> Text:
    counts = {name: tier.pool_counts(name) for name in tier.pools}
    pools = ", ".join(f"{name} {c.ready} of {c.desired}" for name, c in counts.items())
    return Text(f"tier {tier.name}, ready: {pools}", style="bold")


def _state(replica: LocalReplica) -> str:
    if replica.ending:
        return "ends"
    if replica.flip_to is not None:
        return f"flips to {replica.flip_to}"
    if replica.stage is not None:
        return f"starts: {replica.stage}"
    return "drains" if replica.state is LocalState.DRAINING else replica.state.value


def _line(event: Event) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(event.at_s))
    return f"{clock} {event.kind.value}: {event.words}"
