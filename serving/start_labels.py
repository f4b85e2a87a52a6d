"""The stages of a start as one label: `process=3.2,weights=1.1,ready=4`, in seconds.

A stage that was not observed is left out; an empty text says that none was.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from serving.errors import Misconfigured
from serving.types import StartStage

Stages = tuple[tuple[StartStage, float], ...]
_PART = re.compile(r"([a-z]+)=([0-9]{1,9}(?:\.[0-9]{1,9})?)")


def stages_text(stages: Iterable[tuple[StartStage, float]]) -> str:
    """The label of these stages, to the millisecond."""
    return ",".join(
        f"{stage.value}={f'{seconds:.3f}'.rstrip('0').rstrip('.')}" for stage, seconds in stages
    )


def read_stages(text: str) -> Stages:
    """The stages of a label, in the order of a start. Raises `Misconfigured` for any other text."""
    found: dict[StartStage, float] = {}
    for part in text.split(",") if text else ():
        read = _PART.fullmatch(part)
        if read is None or read[1] not in tuple(StartStage) or read[1] in found:
            raise Misconfigured(
                "the stages of a start cannot be read",
                where="start stages",
                found=repr(part[:40]),
                expected=f"each of {', '.join(StartStage)} at most once, as stage=seconds",
            )
        found[StartStage(read[1])] = float(read[2])
    return tuple((stage, found[stage]) for stage in StartStage if stage in found)
