"""Sums of numbers that come from outside. Pure: no clock, no network, no log.

A sum that is not a number, or too large for one, is unknown: it neither raises nor is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

LARGEST_READ = 1e30
"""No counter, gauge or sum on a page gets there, in any unit: what is larger is not believed."""


def known_sum(values: Iterable[float]) -> float | None:
    """The exact sum; `None` if a part is not finite, or the sum is not."""
    try:
        total = math.fsum(values)
    except (OverflowError, ValueError):  # too large on the way; both infinities at once
        return None
    return total if math.isfinite(total) else None
