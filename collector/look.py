"""Look at one source at a time: its new reading, judged against what is remembered of it.

Says which counters of a reading are its progress, and which replicas began to serve within the
window. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collector.timeline import Page, Patience, Track, Window, begin, judge
from serving.types import ReplicaReading, ReplicaState, RouterReading


def look_at_replica(
    track: Track[ReplicaReading] | None,
    reading: ReplicaReading,
    *,
    was: ReplicaState | None,
    start_s: float,
    now_s: float,
    patience: Patience,
) -> tuple[Track[ReplicaReading], Window[ReplicaReading], bool]:
    """One replica's track and window; the last value says whether it began within the window.

    A replica that was seen starting at the last step has served nobody before it, and one whose
    process started within the window neither: their counters rose from zero.
    """
    page = _page(reading)
    if now_s - reading.at_s > patience.max_age_s:
        problem = f"the page is {now_s - reading.at_s:.0f} s old"
        return track or begin(page), Window(at_s=reading.at_s, problem=problem), False
    if track is not None:
        following, window = judge(track, page, patience)
        return following, window, False
    window_s = reading.at_s - start_s
    born_s = reading.process_start_time_s
    young = was is ReplicaState.STARTING or (born_s is not None and born_s >= start_s)
    window = Window(current=reading, dt_s=window_s, at_s=reading.at_s)
    return begin(page), window, young and window_s > 0.0


def _page(reading: ReplicaReading) -> Page[ReplicaReading]:
    steps = reading.step_tokens.count if reading.step_tokens is not None else None
    return Page(
        reading=reading,
        at_s=reading.at_s,
        start_s=reading.process_start_time_s,
        cpu_s=reading.process_cpu_s,
        busy=bool(reading.running_requests),
        progress=(
            reading.process_cpu_s,
            reading.prompt_tokens,
            reading.output_tokens,
            steps,
            reading.finished_requests,
        ),
    )


def _router_page(reading: RouterReading) -> Page[RouterReading]:
    """Without a process clock, standing still only tells where token gaps are counted."""
    counts = [
        histogram.count if histogram is not None else None
        for histogram in (reading.ttft, reading.output_tokens, reading.itl)
    ]
    return Page(
        reading=reading,
        at_s=reading.at_s,
        busy=bool(reading.running_requests) and reading.itl is not None,
        progress=(reading.requests, *counts),
    )


def look_at_router(
    track: Track[RouterReading] | None,
    reading: RouterReading,
    *,
    now_s: float,
    patience: Patience,
) -> tuple[Track[RouterReading], Window[RouterReading]]:
    """The router's track and window; another kind of router page begins anew."""
    page = _router_page(reading)
    if now_s - reading.at_s > patience.max_age_s:
        problem = f"the page is {now_s - reading.at_s:.0f} s old"
        return track or begin(page), Window(at_s=reading.at_s, problem=problem)
    if track is None or track.base.source != reading.source:
        return begin(page), Window(current=reading, at_s=reading.at_s)
    return judge(track, page, patience)
