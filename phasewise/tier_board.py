"""What the control plane shows of one tier: its last ticks, as a view, an explanation, a stream.

Filled by the loop at every tick; read by the API. Everything is made from ticks, on demand.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from autoscaler.explain import explain
from autoscaler.ledger import Ledger
from autoscaler.recorded import RecordedTick
from autoscaler.types import Plan, TierSettings
from autoscaler.view import view
from phasewise.overrides import OverrideBook
from serving.errors import Unavailable
from serving.types import Observation

SHOWN_TICKS = 240  # an hour of 15 s ticks


class TierBoard:
    """One tier's last ticks. `ledger`, where given, answers for those that are older.

    Takes up the ticks and overrides that its ledger ends with, so that a restart shows no gap.
    """

    def __init__(
        self,
        settings: TierSettings,
        *,
        mode: str,
        ledger: Ledger | None = None,
        shown_ticks: int = SHOWN_TICKS,
    ) -> None:
        self.settings = settings
        self.mode = mode
        self._ledger = ledger
        known = () if ledger is None else ledger.newest_ticks(shown_ticks)
        self._ticks: deque[RecordedTick] = deque(known, maxlen=shown_ticks)
        self.overrides = OverrideBook(known[-1].newest.overrides if known else ())
        self.version = 0
        self._changed = asyncio.Event()
        self._shown: tuple[int, bytes] | None = None

    @property
    def name(self) -> str:
        """The tier's name."""
        return self.settings.name

    @property
    def newest(self) -> RecordedTick | None:
        """The last tick, or `None` before the first."""
        return self._ticks[-1] if self._ticks else None

    def note(self, plan: Plan, observations: Sequence[Observation]) -> None:
        """Take in one finished tick."""
        self._ticks.append(
            RecordedTick(
                epoch=plan.epoch, at_s=plan.at_s, observations=tuple(observations), plan=plan
            )
        )
        self.touch()

    def let_go(self) -> None:
        """Ask the ledger no more, before it is closed."""
        self._ledger = None

    def touch(self) -> None:
        """Say to everyone who waits that there is something new to show."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def newer_than(self, version: int) -> None:
        """Wait until there is something newer than a version."""
        while self.version <= version:
            await self._changed.wait()

    def view_json(self) -> bytes:
        """The view as JSON, made once for all who ask. Raises Unavailable before the first tick."""
        if not self._ticks:
            raise Unavailable(f"tier {self.name} has no tick yet")
        if self._shown is None or self._shown[0] != self.version:
            picture = view(
                tuple(self._ticks),
                self.settings,
                mode=self.mode,
                overrides=self.overrides.known(),
            )
            self._shown = (self.version, to_json(picture))
        return self._shown[1]

    def why_json(self, pool: str, *, epoch: int | None = None) -> bytes | None:
        """The explanation of a pool's decision as JSON, of the newest tick unless told.

        `None`: there is no such pool in that tick. Raises Unavailable where there is no such tick.
        """
        tick = self._tick(epoch)
        settings = self.settings
        if self._ledger is not None and tick is not self.newest:
            settings = self._ledger.settings_at(tick.epoch) or settings
        found = explain(tick, settings, pool)
        return None if found is None else to_json(found)

    def _tick(self, epoch: int | None) -> RecordedTick:
        if epoch is None:
            found = self.newest
        else:
            found = next((tick for tick in self._ticks if tick.epoch == epoch), None)
            if found is None and self._ledger is not None:
                found = self._ledger.tick(epoch)
        if found is None:
            which = "no tick yet" if epoch is None else f"no tick {epoch}"
            raise Unavailable(f"tier {self.name} has {which}")
        return found


def to_json(document: Any) -> bytes:
    """Compact JSON of values and dataclasses; a number that is not finite has no place in it."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False, default=_fields_of).encode()


def _fields_of(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
