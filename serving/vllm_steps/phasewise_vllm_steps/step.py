"""One engine step: what it held, which kind it is, and how long it really kept the engine.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

PREFILL, DECODE, MIXED = KINDS = ("prefill", "decode", "mixed")
"""Kinds of steps: prompt tokens only, running sequences only, both."""


_SEVERAL = 1.5
"""So much longer than from call to call, a prompt has taken several steps."""


class Step(NamedTuple):
    """One step. `kv_tokens` were resident while it ran, whoever held them, in whole blocks."""

    prefill_requests: int
    prefill_tokens: int
    decode_sequences: int
    decode_tokens: int
    kv_tokens: float
    seconds: float

    @property
    def kind(self) -> str:
        """By what was scheduled."""
        if self.decode_sequences == 0:
            return PREFILL
        return DECODE if self.prefill_tokens == 0 else MIXED


class StepTime(NamedTuple):
    """Seconds of a step and how they were told (see `StepClock`)."""

    seconds: float
    told_by: str


class StepClock:
    """How long each step of one engine kept it, from what vLLM tells after the step.

    vLLM's own `elapsed_ms` is how long the engine core waited for the step's result. Without
    asynchronous scheduling that is the step without its scheduling. With it the next step is
    scheduled and handed over before that wait begins, so the wait is too short by that work, and
    nearly nothing where the core itself is the bottleneck. Where the core executes steps itself
    (the `uni` executor) they have run before the wait begins, which says next to nothing. What a
    step costs is the time between the ends of two steps if the engine did not idle in between, so
    in this order:

    `gap`: the smallest gap between tokens in the step, by the engine core's clock. A sequence that
    also had a token in the step before has exactly this gap; no sequence can have a smaller one.
    `scheduled`: where the core executes steps itself, the smallest time from scheduled to first
    token of requests that end in the step, by the core's clock: exact if one was scheduled in it,
    as all are on a prefill replica but those whose prompt takes several steps.
    `records`: the time between the two calls of the plugin, where vLLM's figure is too short and
    the step before left work behind. One call may be late, but then the next is early: their sum
    is right.
    `elapsed`: vLLM's figure, otherwise; unknown where the core executes steps itself.
    """

    def __init__(
        self, *, overlapped: bool = False, pipelined: bool = False, in_core: bool = False
    ) -> None:
        """`overlapped`: a step is handed over before the one before ended.

        `pipelined`: several batches take turns, so that gaps between tokens span several steps.
        `in_core`: the engine core executes steps itself.
        """
        self._in_core = in_core
        self._overlapped = overlapped or pipelined
        self._pipelined = pipelined
        self._index: int | None = None
        self._at_s = 0.0
        self._left_work = False

    def time(
        self,
        *,
        index: int | None,
        elapsed_s: float,
        gaps_s: Sequence[float],
        prefills_s: Sequence[float] = (),
        now_s: float,
        leaves_work: bool,
    ) -> StepTime | None:
        """The time of the next step, or `None` if nobody can tell. To be called for each step.

        `index` counts the engine's steps; `leaves_work`: requests run or wait after it;
        `prefills_s`: scheduled to first token, of requests that end in it.
        """
        before, before_s, busy = self._index, self._at_s, self._left_work
        self._index, self._at_s, self._left_work = index, now_s, leaves_work
        follows = index is not None and before is not None and index == before + 1
        if follows and gaps_s and not self._pipelined:
            gap_s = min(gaps_s)
            if 0.0 < gap_s < math.inf:
                return StepTime(gap_s, "gap")
        between_s = now_s - before_s if follows and busy and now_s > before_s else math.inf
        if self._in_core and not self._pipelined and prefills_s:
            prefill_s = min(prefills_s)
            if 0.0 < prefill_s < between_s * _SEVERAL:
                return StepTime(prefill_s, "scheduled")
        if between_s < math.inf and (self._overlapped or self._in_core):
            return StepTime(between_s, "records")
        if self._in_core:
            return None
        return StepTime(elapsed_s, "elapsed") if 0.0 < elapsed_s < math.inf else None
