"""The shares of requests within an SLO as PromQL, and what is known of them between two buckets.

A histogram tells such a share exactly where the SLO is one of its bucket bounds. The user's mean
token gap has a second witness: the decode side's own histogram of each request's mean gap, with
other bounds. Between two bounds nothing is interpolated: a bucket may hold all its requests at one
end. Pure: no clock, no network, no log.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from serving.recorded import (
    TIER_LABELS,
    RecordedSpec,
    WithinSlo,
    epp_names,
    first_of,
    rate_by,
)
from serving.types import RouterSample, Slo

CLOSE_RATIO = 0.02
"""How far the shares at the bounds around an SLO may lie apart for the lower one to be taken."""

EPP_BOUNDS_S: Mapping[WithinSlo, tuple[float, ...]] = {
    WithinSlo.TTFT: (
        *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0),
        *(8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0),
        *(600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0),
    ),
    WithinSlo.TPOT: (
        *(0.0005, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4),
        *(0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.5, 6.0, 12.0, 18.0, 24.0, 30.0, 36.0, 48.0, 60.0),
        *(90.0, 120.0, 180.0, 270.0, 360.0),
    ),
}
"""The endpoint picker's bucket bounds (llm-d/llm-d-router, Apache-2.0, `pkg/epp/metrics/`).

With other bounds a rule has no data, never a wrong number.
"""

DECODE_TPOT_BOUNDS_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
"""vLLM's bounds of a request's mean gap (vllm-project/vllm 0.32.0, Apache-2.0,
`vllm/v1/metrics/loggers.py`).
"""

WITHIN_EXAMPLE = Slo(ttft_s=2.0, itl_s=0.05, attainment_ratio=0.95)
"""An SLO to show the expressions with: TTFT on a bound of the picker, the gap on decode's only."""

_DECODE = "vllm:request_time_per_output_token_seconds"
_FAILED = "vllm:request_success_total"


def settled(least: float, most: float) -> float | None:
    """One number for a share that lies between two: the least, or `None` if they are far apart."""
    return least if most - least <= CLOSE_RATIO + 1e-9 else None


def joined(name: str, routers: Sequence[RouterSample]) -> tuple[bool, float | None]:
    """Whether a share lies between two bounds in these windows, and what it then is over all.

    The limits of all windows are joined before they are judged: to leave out the windows that are
    not settled would leave out the requests that were late.
    """
    limits = [
        (least, most, dict(router.counted)[name])
        for router in routers
        for between, least, most in router.between
        if between == name
    ]
    count = math.fsum(n for _, _, n in limits)
    if count <= 0.0:
        return bool(limits), None
    least_ratio = math.fsum(least * n for least, _, n in limits) / count
    return True, settled(least_ratio, math.fsum(most * n for _, most, n in limits) / count)


def limit_s(within: WithinSlo, slo: Slo) -> float:
    """The threshold that a share is of."""
    return slo.ttft_s if within is WithinSlo.TTFT else slo.itl_s


def neighbours(within: WithinSlo, slo: Slo) -> tuple[float | None, float | None]:
    """The picker's bounds around a threshold, equal where it is a bound; `None` beyond the ends."""
    limit, bounds = limit_s(within, slo), EPP_BOUNDS_S[within]
    if limit in bounds:
        return limit, limit
    index = bisect_left(bounds, limit)
    return (bounds[index - 1] if index else None), (bounds[index] if index < len(bounds) else None)


def expression(spec: RecordedSpec, *, tier: str, slo: Slo) -> str:
    """The PromQL of one recorded series; a share within the SLO is that of this tier alone.

    Of the token gap: from the picker where the SLO is one of its bounds, else from decode;
    ValueError if it is a bound of neither. Of TTFT, which only the picker knows: between two of its
    bounds the lower one's share while the two are close, else no data.
    """
    if spec.within is None:
        return spec.expr
    names = epp_names(spec.within.value)
    low, high = neighbours(spec.within, slo)
    if spec.within is WithinSlo.TTFT:
        return first_of(*(_picker(name, tier, low, high, _STREAMED) for name in names))
    told = [_picker(name, tier, low, high) for name in names] if low == high else []
    if slo.itl_s in DECODE_TPOT_BOUNDS_S:
        told.append(_decode(tier, slo.itl_s))
    if not told:
        raise ValueError(
            f"{slo.itl_s:g} s is no bucket bound of the endpoint picker or of decode "
            f"(nearest {_nearest(slo.itl_s)})"
        )
    return first_of(*told)


_STREAMED = 'streaming!="false"'


def _picker(name: str, tier: str, low: float | None, high: float | None, *also: str) -> str:
    selectors = (f'tier="{tier}"', *also)
    count = _part(f"{name}_count", *selectors)
    least = f"0 * {count}" if low is None else _part(f"{name}_bucket", *selectors, _le(low))
    share = f"{least} / ({count} > 0)"
    if low == high:
        return share
    most = count if high is None else _part(f"{name}_bucket", *selectors, _le(high))
    return f"{share} and ({most} - {least}) / ({count} > 0) <= {CLOSE_RATIO:g}"


def _decode(tier: str, bound_s: float) -> str:
    """Without the requests that failed early, which count with a gap of 0."""
    selectors = (f'tier="{tier}"', 'phase=~"decode|both"')
    count = _part(f"{_DECODE}_count", *selectors)
    failed = f"({_part(_FAILED, *selectors, _ERROR)} or 0 * {count})"
    within = f"clamp_min({_part(f'{_DECODE}_bucket', *selectors, _le(bound_s))} - {failed}, 0)"
    return f"{within} / ({count} - {failed} > 0)"


_ERROR = 'finished_reason="error"'


def _part(series: str, *selectors: str) -> str:
    return rate_by(f"{series}{{{', '.join(selectors)}}}", TIER_LABELS)


def _nearest(limit: float) -> str:
    bounds = sorted({*EPP_BOUNDS_S[WithinSlo.TPOT], *DECODE_TPOT_BOUNDS_S})
    index = bisect_left(bounds, limit)
    return " and ".join(f"{bound:g} s" for bound in bounds[max(0, index - 1) : index + 1])


def _le(bound: float) -> str:
    """Matches a bound as Go's client writes it and as Prometheus 3 does: `2` and `2.0`."""
    text = f"{bound:g}"
    return f'le="{text}"' if "." in text else f'le=~"{text}(\\\\.0)?"'
