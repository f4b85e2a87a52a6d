"""What `phasewise serve` answers from: the published plan of each tier, watched and kept in memory.

How old a plan is is told by this process's own clock and the writer's heartbeat alone. Loads no
arithmetic, so that an answer never waits for a plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from autoscaler.keda_answers import SeenPlan
from autoscaler.plan_codec import PublishedPlan, load_published
from serving.errors import Misconfigured

_log = structlog.get_logger("phasewise")
_Signature = tuple[int, int, int]


@dataclass(slots=True, kw_only=True)
class _WatchedFile:
    """One tier's file: what it looked like last, what stood in it, when its heartbeat moved."""

    path: Path
    looked: bool = False
    signature: _Signature | None = None
    published: PublishedPlan | None = None
    moved_at_s: float | None = None
    problem: str = ""


class PlanWatch:
    """The newest plan of each tier. `monotonic_s` tells this process's own time, in seconds.

    A plan counts as renewed when `written` grows under the watcher's eyes, or when a file appears
    where there was none. What was there before the first look may be of any age, and a count that
    fell is another writer's: both wait for the next write.
    """

    def __init__(self, files: Mapping[str, Path], *, monotonic_s: Callable[[], float]) -> None:
        self._files = {tier: _WatchedFile(path=path) for tier, path in files.items()}
        self._monotonic_s = monotonic_s

    def look(self) -> None:
        """Read what has changed since the last look."""
        for tier in self._files:
            self._look_at(tier)

    def _look_at(self, tier: str) -> None:
        file = self._files[tier]
        try:
            self._read(file)
            problem = ""
        except FileNotFoundError:
            file.signature = None
            problem = f"{file.path} is not there"
        except (OSError, Misconfigured) as error:
            problem = f"{file.path} cannot be read: {error}"
        if problem and problem != file.problem:
            then = "refused" if file.published is None else "given the last one until it is stale"
            _log.warning(f"no new plan; whoever asks is {then}", tier=tier, why=problem)
        file.problem = problem
        file.looked = True

    def _read(self, file: _WatchedFile) -> None:
        now = file.path.stat()
        signature = (now.st_ino, now.st_mtime_ns, now.st_size)
        if signature == file.signature:
            return
        published = load_published(file.path.read_bytes())
        last, file.published, file.signature = file.published, published, signature
        if last is None:
            file.moved_at_s = self._monotonic_s() if file.looked else None
        elif published.written > last.written:
            file.moved_at_s = self._monotonic_s()
        elif published.written < last.written:
            file.moved_at_s = None

    def seen(self, tier: str) -> SeenPlan:
        """The tier's plan, from memory; KeyError if the tier is not watched."""
        file = self._files[tier]
        if file.published is None:
            return SeenPlan(problem=file.problem)
        age_s = None if file.moved_at_s is None else self._monotonic_s() - file.moved_at_s
        return SeenPlan(
            plan=file.published.plan,
            mode=file.published.mode,
            age_s=age_s,
            problem=file.problem,
        )

    async def keep_looking(self, every_s: float = 0.5) -> None:
        """Look again and again, for ever; between two files whoever asks is answered."""
        while True:
            await asyncio.sleep(every_s)
            for tier in self._files:
                self._look_at(tier)
                await asyncio.sleep(0)
