"""From one window of the front end to a `RouterSample`: the user's own clock.

Its histograms say how many requests were within the SLO. Where the SLO is no bucket bound, only the
least and the most that it can be are known, and a sentence says so: nothing is interpolated. When a
measurement was last known is not known here.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from collector.spread import Growth, growth
from collector.timeline import Window
from serving.recorded_within import CLOSE_RATIO, settled
from serving.types import HistogramReading, Measurement, RouterReading, RouterSample, Slo

COUNTERS = {"requests_per_s": "requests", "failed_requests_per_s": "failed_requests"}
MEANS = {
    "input_tokens_mean": "input_tokens",
    "cached_tokens_mean": "cached_tokens",
    "output_tokens_mean": "output_tokens",
    "ttft_mean_s": "ttft",
    "tpot_mean_s": "tpot",
}
MEASUREMENTS = (
    *COUNTERS,
    *MEANS,
    *("running_requests", "finished_requests_per_s"),
    *("ttft_within_slo_ratio", "tpot_within_slo_ratio"),
)
"""Every measurement of a `RouterSample`, by field name."""


def derive_router_sample(
    source: str,
    window: Window[RouterReading],
    *,
    slo: Slo | None,
    now_s: float,
    window_start_s: float,
    problems: Sequence[str] = (),
) -> RouterSample:
    """One window of the router. Without a previous page only what runs now is known."""
    said = list(problems)
    now, before, dt_s = window.current, window.previous, window.dt_s
    age_s = max(0.0, now_s - window.at_s)
    values: dict[str, Measurement] = {}
    counted: list[tuple[str, float]] = []
    between: list[tuple[str, float, float]] = []
    if now is not None and now.running_requests is not None:
        values["running_requests"] = Measurement(now.running_requests, age_s, 1.0)
    if now is not None and before is not None:
        for name, field in COUNTERS.items():
            later, earlier = getattr(now, field), getattr(before, field)
            if later is not None and earlier is not None and later >= earlier:
                values[name] = Measurement((later - earlier) / dt_s, age_s, 1.0)
        grown = {field: _growth(now, before, field, said) for field in MEANS.values()}
        for name, field in MEANS.items():
            one = grown[field]
            if one is not None and one.count > 0.0:
                values[name] = Measurement(one.sum / one.count, age_s, 1.0)
                counted.append((name, one.count))
        finished = grown["output_tokens"] or grown["input_tokens"]
        if finished is not None:
            values["finished_requests_per_s"] = Measurement(finished.count / dt_s, age_s, 1.0)
        if slo is not None:
            for field, limit_s in (("ttft", slo.ttft_s), ("tpot", slo.itl_s)):
                one, name = grown[field], f"{field}_within_slo_ratio"
                shares = within_ratios(one, limit_s) if one is not None else None
                if shares is None or one is None:
                    continue
                counted.append((name, one.count))
                if limit_s not in one.bounds:
                    between.append((name, *shares))
                share = settled(*shares)
                values[name] = Measurement(share, age_s if share is not None else None, 1.0)
    return RouterSample(
        source=source,
        window_start_s=window_start_s,
        window_s=now_s - window_start_s,
        problems=tuple(said),
        counted=tuple(counted),
        between=tuple(between),
        **values,
    )


def _growth(
    now: RouterReading, before: RouterReading, field: str, said: list[str]
) -> Growth | None:
    later: HistogramReading | None = getattr(now, field)
    earlier: HistogramReading | None = getattr(before, field)
    if later is None or earlier is None:
        return None
    grown = growth(later, earlier)
    if grown is None:
        said.append(f"router: {field} grew in no way that a histogram can")
    return grown


def within_ratios(grown: Growth, limit_s: float) -> tuple[float, float] | None:
    """The least and the most that the share at or under a limit can be; `None` if nothing is known.

    Equal, so exact, where the limit is a bucket bound. Else they are the shares at the bounds
    around it: where in a bucket its observations lie, nobody can tell.
    """
    if grown.count <= 0.0:
        return None
    within = grown.within(limit_s)
    return None if within is None else (within[0] / grown.count, within[1] / grown.count)


def off_bound(reading: RouterReading, slo: Slo) -> tuple[str, ...]:
    """A sentence for each SLO threshold that is no bucket bound, so not exactly counted."""
    said: list[str] = []
    for field, limit_s in (("ttft", slo.ttft_s), ("tpot", slo.itl_s)):
        histogram: HistogramReading | None = getattr(reading, field)
        if histogram is None or limit_s in histogram.bounds:
            continue
        index = bisect_left(histogram.bounds, limit_s)
        near = [f"{bound:g} s" for bound in histogram.bounds[max(0, index - 1) : index + 1]]
        only = "the shares within" if len(near) == 2 else "none or all and the share within"
        said.append(
            f"router: the {field} threshold of {limit_s:g} s is no bucket bound of "
            f"{reading.source}: the truth lies between {only} {' and '.join(near)}, and is "
            f"unknown where they differ by more than {CLOSE_RATIO:g}"
        )
    return tuple(said)
