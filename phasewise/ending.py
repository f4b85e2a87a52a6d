"""Nothing is left behind: how processes that belong together end together.

Whoever starts one says how it ends with its parent, even when the parent is killed and can say
nothing any more: a pipe closes then, and whoever reads it knows.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from types import FrameType

EXIT_TERMINATED = 143  # 128 and the number of SIGTERM, as a shell says it


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """SIGTERM does here what Ctrl-C does, so that everything is cleaned up; the exit code is 143.

    For the main thread, where signals are taken.
    """
    told = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal told
        told = True
        interrupt = signal.getsignal(signal.SIGINT)  # asyncio has its own, which cancels
        if not callable(interrupt):  # ignored, as in a job in the background
            raise KeyboardInterrupt
        interrupt(number, frame)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    except KeyboardInterrupt:
        if told:
            raise SystemExit(EXIT_TERMINATED) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def end_with_parent() -> None:
    """Begin a process of a pool: it ends at once when its parent is gone, and leaves Ctrl-C to it.

    Does nothing in a process that `multiprocessing` did not start.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def on_closed_stdin(call: Callable[[], object]) -> None:
    """Call once standard input has come to its end, from a thread that nobody waits for."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        with suppress(RuntimeError):  # the loop that should hear of it has ended already
            call()

    threading.Thread(target=watch, daemon=True).start()
