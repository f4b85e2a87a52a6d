"""What the step exporters of a pool's replicas added in a window.

Sums of those that report: never scaled up, since a fit asks how steps were, not how many.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterable

from serving.step_sums import StepReading, both_added, grown
from serving.types import ReplicaReading

Ends = tuple[str, ReplicaReading | None, ReplicaReading | None]
"""A replica, its reading at the end and at the start of the window; no start: it began within."""


def window_steps(ends: Iterable[Ends], said: list[str]) -> StepReading | None:
    """The steps of all replicas together; `None` where none has a step exporter at both ends."""
    total: StepReading | None = None
    for replica, now, before in ends:
        if now is None or now.steps is None or (before is not None and before.steps is None):
            continue
        found = grown(now.steps, None if before is None else before.steps)
        if found is None:
            said.append(f"{replica}: the sums of its steps grew in no way that steps can")
        else:
            total = found if total is None else both_added(total, found)
    return total
