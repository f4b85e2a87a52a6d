"""Keeping the book of a run, and publishing its plan. The recorder of the loop.

The published plan is a JSON file, replaced as a whole, for whoever wants to read it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from autoscaler.codec import dump_plan
from autoscaler.ledger import Ledger
from autoscaler.state import LearnedState
from autoscaler.types import Plan, TierSettings
from serving.types import Observation


class LedgerRecorder:
    """Writes every tick to a ledger, and the newest plan beside it as `<ledger>.plan.json`."""

    def __init__(
        self,
        ledger: Ledger,
        settings: TierSettings,
        state: LearnedState,
        *,
        max_age_s: float,
        max_bytes: int,
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._version = version("phasewise")
        self._max_age_s = max_age_s
        self._max_bytes = max_bytes
        self._plan_file = ledger.path.with_name(ledger.path.name + ".plan.json")
        ledger.begin(state, settings, version=self._version)

    def record(self, observations: Sequence[Observation], plan: Plan, state: LearnedState) -> None:
        """One tick into the ledger, then the plan for everyone else."""
        self._ledger.append(observations, plan, state, self._settings, version=self._version)
        if plan.epoch % 40 == 0:
            self._ledger.trim(now_s=plan.at_s, max_age_s=self._max_age_s, max_bytes=self._max_bytes)
        replace_file(self._plan_file, dump_plan(plan))


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or the new one, never half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.replace(path)
