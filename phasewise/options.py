"""Options that several commands share, checked. Pure: no clock, no network, no log."""

from __future__ import annotations

import math

from serving.errors import Misconfigured


def speed_of(speed: float) -> float | None:
    """Virtual seconds in a real one at most; 0 means no limit."""
    if not math.isfinite(speed) or speed < 0.0:
        raise Misconfigured(
            "no such speed", where="--speed", found=f"{speed:g}", expected="0 or more"
        )
    return speed or None
