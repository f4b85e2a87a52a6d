"""How a replica starts: which stage it is in after how long. Pure: no clock, no network, no log."""

from __future__ import annotations

from collections.abc import Mapping

from serving.errors import Misconfigured
from serving.types import StartKind, StartStage


class StartUp:
    """One start as a row of stages with their ends, in seconds since it was asked for.

    With `total_s` the stages keep their shares and add up to it. `kind` is `None` where cold and
    warm starts are alike.
    """

    __slots__ = ("ends_s", "kind", "total_s")

    def __init__(
        self,
        stage_s: Mapping[StartStage, float],
        *,
        total_s: float | None = None,
        kind: StartKind | None = None,
    ) -> None:
        self.kind = kind
        asked_s = sum(stage_s.values())
        if total_s is not None and asked_s <= 0.0:
            raise Misconfigured(
                "stages without duration cannot be scaled",
                where="start-up",
                found=repr(asked_s),
                expected="more than 0 s in all",
            )
        scale = 1.0 if total_s is None else total_s / asked_s
        end_s = 0.0
        ends: list[tuple[StartStage, float]] = []
        for stage in StartStage:
            end_s += stage_s.get(stage, 0.0) * scale
            ends.append((stage, end_s))
        self.ends_s = tuple(ends)
        self.total_s = total_s if total_s is not None else end_s

    def stage_at(self, elapsed_s: float) -> StartStage:
        """The stage that is going on; the last one once all have ended."""
        for stage, end_s in self.ends_s:
            if elapsed_s < end_s:
                return stage
        return StartStage.READY

    def stages_s(self) -> tuple[tuple[StartStage, float], ...]:
        """How long each stage takes, to the millisecond."""
        began_s = (0.0, *(end_s for _, end_s in self.ends_s))
        return tuple(
            (stage, round(end_s - since_s, 3))
            for (stage, end_s), since_s in zip(self.ends_s, began_s, strict=False)
        )

    def process_starts_s(self) -> float:
        """When the engine's process begins, in seconds since the start was asked for."""
        before_s = 0.0
        for stage, end_s in self.ends_s:
            if stage is StartStage.PROCESS:
                return before_s
            before_s = end_s
        return before_s
