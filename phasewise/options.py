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


def until_of(until_s: float) -> float:
    """A virtual time at which to end."""
    if not math.isfinite(until_s) or until_s < 0.0:
        raise Misconfigured(
            "no such time", where="--until", found=f"{until_s:g}", expected="seconds, 0 or more"
        )
    return until_s
