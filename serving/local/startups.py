"""How long each stage of a start took, told from what an engine writes to its log.

`StartLog` is fed lines and times and says which stage the start is in; it reads no file itself.
Lines are of vLLM 0.32. A stage that was never seen to begin is not in the record: unknown, not 0.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from serving.types import StartStage

_WEIGHTS_BEGIN = re.compile(r"Starting to load model|Loading (?:safetensors|pt) checkpoint")
_WEIGHTS_END = re.compile(r"Loading weights took|Model loading took")
_ENGINE_UP = re.compile(r"init engine \(|Application startup complete")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord:
    """One start: seconds in each stage that was seen, from wanted to its first answer.

    `stages` holds process (to the engine's own log of loading), weights (fetched and loaded),
    compile (KV cache and warm-up, until it says healthy) and ready (its first answer). `cold`: the
    weights came from their source, not from this machine's cache. `ended_s` is `None` while it
    goes on; `failed` if it came to nothing.
    """

    replica: str
    pool: str
    asked_s: float
    ended_s: float | None = None
    failed: bool = False
    cold: bool | None = None
    stages: tuple[tuple[StartStage, float], ...] = ()

    def as_json(self) -> dict[str, object]:
        """The record as a JSON object; `seconds` is the whole start."""
        whole = None if self.ended_s is None else round(self.ended_s - self.asked_s, 3)
        return {
            **{"replica": self.replica, "pool": self.pool, "asked_s": self.asked_s},
            **{"ended_s": self.ended_s, "failed": self.failed, "cold": self.cold},
            "seconds": whole,
            "stages": {stage.value: round(seconds, 3) for stage, seconds in self.stages},
        }


class StartLog:
    """The stages of one start as they come; time that a stage takes twice is added up."""

    def __init__(self, replica: str, pool: str, *, asked_s: float) -> None:
        self._replica, self._pool, self._asked_s = replica, pool, asked_s
        self._seconds: dict[StartStage, float] = {}
        self._since_s = asked_s
        self._ended_s: float | None = None
        self._failed = False
        self._loads = False
        self.stage: StartStage | None = StartStage.PROCESS
        self.cold: bool | None = None

    def enter(self, stage: StartStage, at_s: float) -> None:
        """The start is in another stage from now on."""
        if self.stage is stage or self._ended_s is not None:
            return
        self._close(at_s)
        self.stage = stage

    def line(self, text: str, at_s: float) -> None:
        """A line of the engine's log; stages never go back because of one."""
        starts, loads = self.stage is StartStage.PROCESS, self.stage is StartStage.WEIGHTS
        if starts and _WEIGHTS_BEGIN.search(text):
            self._loads = True
            self.enter(StartStage.WEIGHTS, at_s)
        elif ((starts or loads) and _WEIGHTS_END.search(text)) or (
            starts and _ENGINE_UP.search(text)
        ):
            self.enter(StartStage.COMPILE, at_s)

    def end(self, at_s: float, *, failed: bool = False) -> None:
        """The first answer has come, or the start has come to nothing."""
        if self._ended_s is None:
            self._close(at_s)
            self._ended_s, self._failed = at_s, failed
            self.stage = None

    def record(self) -> StartRecord:
        """What is known so far.

        An engine whose log did not say that it loads has loaded all the same, in the time of its
        process: how long each took is not known then.
        """
        hidden = () if self._loads else (StartStage.PROCESS, StartStage.WEIGHTS)
        order = [s for s in StartStage if s in self._seconds and s not in hidden]
        return StartRecord(
            replica=self._replica,
            pool=self._pool,
            asked_s=self._asked_s,
            ended_s=self._ended_s,
            failed=self._failed,
            cold=self.cold,
            stages=tuple((stage, self._seconds[stage]) for stage in order),
        )

    def _close(self, at_s: float) -> None:
        if self.stage is not None:
            spent_s = max(0.0, at_s - self._since_s)
            self._seconds[self.stage] = self._seconds.get(self.stage, 0.0) + spent_s
        self._since_s = at_s
