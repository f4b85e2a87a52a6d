"""The console beside a running loop: started with it, and never a reason for it to stop."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog

from phasewise.api import Api, ApiSettings
from phasewise.settings import ConsoleSettings
from phasewise.tier_board import TierBoard
from serving.errors import Misconfigured

_log = structlog.get_logger("phasewise")

Show = Callable[[TierBoard], None]


def show_nowhere(_: TierBoard) -> None:
    """Where there is no console."""


@asynccontextmanager
async def console_of(
    settings: ConsoleSettings, *, metrics: Callable[[], bytes] | None = None
) -> AsyncIterator[Show]:
    """The console of `phasewise run`; gives what shows a tier on it.

    A token file that cannot be read stops the start. A port that is taken does not: the loop
    matters more than its page.
    """
    if not settings.enabled:
        yield show_nowhere
        return
    api = Api(
        (),
        ApiSettings(
            host=settings.host,
            port=settings.port,
            token_file=settings.token_file,
            metrics=metrics,
        ),
    )
    try:
        await api.start()
    except Misconfigured as error:
        _log.error("no console; the loop goes on without it", why=str(error))
        yield show_nowhere
        return
    _log.info("console listens", address=api.address, overrides=settings.token_file is not None)
    try:
        yield api.show
    finally:
        await api.stop()


def may_open_browser() -> bool:
    """Whether there is a screen for a browser of its own; one inside the terminal is not wanted."""
    if sys.platform.startswith(("win", "darwin")):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


async def open_browser(address: str) -> bool:
    """Try to open a page; whether that could be tried. No browser is no fault."""
    if not may_open_browser():
        return False
    try:
        return await asyncio.to_thread(webbrowser.open, address)
    except (webbrowser.Error, OSError):
        return False
