"""One JSON line for each step, into the file that `PHASEWISE_STEP_LOG` names: for trials.

A busy engine writes some 100 bytes a step; nobody rotates the file.
"""

from __future__ import annotations

import json
import os
import time
from typing import TextIO

from phasewise_vllm_steps.step import Step

VARIABLE = "PHASEWISE_STEP_LOG"


class RawLog:
    """Appends steps to a file, line by line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    @classmethod
    def from_environment(cls) -> RawLog | None:
        """The log that the environment asks for, or `None`. OSError if it cannot be written."""
        path = os.environ.get(VARIABLE)
        return cls(open(path, "a", buffering=1)) if path else None

    def write(self, step: Step, *, engine: int, told_by: str, elapsed_s: float) -> None:
        """Add one step. `elapsed_seconds` is vLLM's own figure, `told_by` whose `seconds` are."""
        line = {
            "t": round(time.time(), 6),  # noqa: TID251 - when it was, for people
            "engine": engine,
            "prefill_tokens": step.prefill_tokens,
            "prefill_requests": step.prefill_requests,
            "decode_tokens": step.decode_tokens,
            "decode_sequences": step.decode_sequences,
            "kv_tokens": round(step.kv_tokens),
            "seconds": round(step.seconds, 7),
            "elapsed_seconds": round(elapsed_s, 7),
            "told_by": told_by,
        }
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
