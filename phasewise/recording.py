"""Keeping the book of a run, and publishing its plan. The recorder of the loop.

The published plan is a JSON file, replaced as a whole at every tick: `phasewise serve` answers
from it, and whoever else wants may read it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import structlog

from autoscaler.ledger import Ledger
from autoscaler.plan_codec import PlanMode, PublishedPlan, dump_published, load_published
from autoscaler.state import LearnedState
from autoscaler.types import Plan, TierSettings
from phasewise.places import plan_file
from serving.errors import Misconfigured
from serving.types import Observation

_log = structlog.get_logger("phasewise")


class LedgerRecorder:
    """Writes every tick to a ledger, and the newest plan beside it as `<ledger>.plan.json`.

    `acts` says whether the plan may be acted on, by this process or by whoever reads it. The count
    of writes goes on from that of the file that is there, so that it grows over restarts too.
    """

    def __init__(
        self,
        ledger: Ledger,
        settings: TierSettings,
        state: LearnedState,
        *,
        acts: bool,
        max_age_s: float,
        max_bytes: int,
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._version = version("phasewise")
        self._max_age_s = max_age_s
        self._max_bytes = max_bytes
        self._mode: PlanMode = "act" if acts else "advise"
        self._plan_file = plan_file(ledger.path)
        self._written = written_so_far(self._plan_file)
        ledger.begin(state, settings, version=self._version)

    def record(self, observations: Sequence[Observation], plan: Plan, state: LearnedState) -> None:
        """One tick into the ledger, then the plan for everyone else.

        What fails fails before the tick is in the ledger: then it never was, and may come again.
        """
        if plan.epoch % 40 == 0:
            self._ledger.trim(now_s=plan.at_s, max_age_s=self._max_age_s, max_bytes=self._max_bytes)
        self._ledger.append(observations, plan, state, self._settings, version=self._version)
        self._written += 1
        published = PublishedPlan(mode=self._mode, plan=plan, written=self._written)
        try:
            replace_file(self._plan_file, dump_published(published))
        except OSError as error:  # the tick is in the ledger: it counts, whoever reads the file
            _log.warning(
                "the plan could not be published: whoever reads it sees an old one and holds; see "
                "to the folder's space and rights",
                file=str(self._plan_file),
                why=str(error),
            )


def written_so_far(file: Path) -> int:
    """The count of writes in a published plan; 0 where there is none that can be read."""
    try:
        return load_published(file.read_bytes()).written
    except (OSError, Misconfigured):
        return 0


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or the new one, never half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.replace(path)
