"""Is an SLO a bucket bound of the page's own latency histograms? If not, attainment is unsure.

Bounds are read from the page: engines let users change them. Pure: no clock, no network, no log.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from collector.evidence import Dialect
from serving.catalogue import BY_NAME, Owner
from serving.dialects.page import Page, histogram_name, label
from serving.types import Phase, Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class OffBounds:
    """An SLO that is no bucket bound of a histogram; its neighbours, `None` beyond the last."""

    key: str
    limit_s: float
    histogram: str
    below_s: float | None
    above_s: float | None

    @property
    def words(self) -> str:
        """In one sentence, with what to do."""
        near = [f"{v:g}" for v in (self.below_s, self.above_s) if v is not None]
        beyond = "" if self.above_s is not None else ", and none above"
        return (
            f"SLO {self.key} {self.limit_s:g} is no bucket bound of {self.histogram} "
            f"(nearest {' and '.join(near)}{beyond}): "
            "attainment lies between theirs, and is unknown where those differ"
        )


def slo_off_bounds(
    page: Page, dialect: Dialect, phase: Phase | None, slo: Slo
) -> tuple[OffBounds, ...]:
    """The targets that no bucket of this page's latency histograms ends at.

    Users' time to first token is judged at the front end, or at an aggregated replica.
    """
    names: list[tuple[str, float, str]] = []
    if dialect is Dialect.EPP:
        names += [("ttftSeconds", slo.ttft_s, n) for n in _epp(page, "ttft")]
        names += [("itlSeconds", slo.itl_s, n) for n in _epp(page, "tpot")]
    elif dialect in (Dialect.VLLM, Dialect.SIMULATOR):
        if phase is Phase.BOTH:
            names.append(("ttftSeconds", slo.ttft_s, "vllm:time_to_first_token_seconds"))
        if phase in (Phase.BOTH, Phase.DECODE):
            names.append(("itlSeconds", slo.itl_s, "vllm:request_time_per_output_token_seconds"))
    found = (_off(page, key, limit_s, name) for key, limit_s, name in names)
    return tuple(off for off in found if off is not None)


def _epp(page: Page, field: str) -> list[str]:
    names = [s.name for s in BY_NAME.values() if s.owner is Owner.EPP and s.field == field]
    present = histogram_name(page, names)
    return [present] if present is not None else []


def _off(page: Page, key: str, limit_s: float, name: str) -> OffBounds | None:
    bounds = sorted(
        {
            float(text)
            for labels in page.samples.get(f"{name}_bucket", {})
            if (text := label(labels, "le")) is not None and _is_finite(text)
        }
    )
    if not bounds or any(math.isclose(bound, limit_s, rel_tol=1e-9) for bound in bounds):
        return None
    at = bisect_left(bounds, limit_s)
    return OffBounds(
        key=key,
        limit_s=limit_s,
        histogram=name,
        below_s=bounds[at - 1] if at else None,
        above_s=bounds[at] if at < len(bounds) else None,
    )


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
