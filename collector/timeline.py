"""Judge one page against the pages before it: usable, restarted, late, frozen or unbelievable.

It looks at counters that can only rise within a process (its *progress*), knows nothing of what
they count, and gives a `Window`: what may be used of this page, and from which moment it really is.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import Generic, TypeVar

Progress = tuple[float | None, ...]
"""Rising counters, always in the same order; `None` where the page lacks one."""

History = tuple[tuple[float, Progress], ...]
"""Pages by the moment that they showed, in rising order."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[R]):
    """One page as the judge sees it. `busy`: requests run now. `cpu_s`: the process clock."""

    reading: R
    at_s: float
    progress: Progress
    start_s: float | None = None
    cpu_s: float | None = None
    busy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Track(Generic[R]):
    """What is remembered of one source of pages.

    `history` holds (moment, progress) of its past pages by the moment that they really showed;
    `base` is the reading of the last entry. `late_s` is how far the pages lag, 0 when they do not,
    and `before` the history until they did.
    `still_windows` counts pages in a row that showed no sign of life though they should.
    """

    base: R
    base_at_s: float
    read_at_s: float
    start_s: float | None
    cpu_s: float | None
    history: History
    late_s: float = 0.0
    before: History = ()
    still_windows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Generic[R]):
    """What may be used: `current` for gauges, `previous` to `current` for rates over `dt_s`.

    `at_s` is the moment that `current` really shows. `problem` says why something is missing.
    """

    current: R | None = None
    previous: R | None = None
    dt_s: float = 0.0
    at_s: float = 0.0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How old a page may be, how long a source is remembered, when standing still is frozen."""

    max_age_s: float = 15.0
    history_s: float = 120.0
    frozen_windows: int = 2


def begin(page: Page[R]) -> Track[R]:
    """Remember a source from its first page, or from the first after its memory was dropped."""
    return Track(
        base=page.reading,
        base_at_s=page.at_s,
        read_at_s=page.at_s,
        start_s=page.start_s,
        cpu_s=page.cpu_s,
        history=((page.at_s, page.progress),),
    )


def judge(track: Track[R], page: Page[R], patience: Patience) -> tuple[Track[R], Window[R]]:
    """The next track and the window that ends with this page."""
    if page.at_s <= track.read_at_s:
        return track, Window(problem="the page was not asked for again")
    last = track.history[-1][1]
    if _younger(page.start_s, track.start_s):
        return begin(page), Window(
            current=page.reading, at_s=page.at_s, problem="restarted: its counters began anew"
        )
    if _younger(track.start_s, page.start_s):
        return track, Window(problem="the page is of a process that ended before")
    fell = any(c < p for c, p in _both(page.progress, last))
    rose = any(c > p for c, p in _both(page.progress, last))
    if fell and rose:
        return begin(page), Window(problem="some counters fell while others rose")
    if fell:
        return _went_back(track, page, patience)
    if track.late_s > 0.0 and (_caught_up(track, page) or _had_caught_up(track, page)):
        if not any(c > p for c, p in _both(page.progress, track.before[-1][1])):
            return _went_back(track, page, patience)  # no further than before it was late
        return begin(page), Window(
            current=page.reading, at_s=page.at_s, problem="no longer late: the jump is discarded"
        )
    if not rose:
        stands = page.cpu_s is not None and page.cpu_s == track.cpu_s
        still = track.still_windows + 1 if stands or page.busy else 0
        if stands or still >= patience.frozen_windows:
            problem = "is frozen" if still >= patience.frozen_windows else "does not change"
            waited_s = page.at_s - track.base_at_s - track.late_s
            track = replace(track, read_at_s=page.at_s, still_windows=still)
            return track, Window(problem=f"the page {problem}, {waited_s:.0f} s by now")
        return _goes_on(replace(track, still_windows=still), page, patience)
    return _goes_on(replace(track, still_windows=0), page, patience)


def _goes_on(track: Track[R], page: Page[R], patience: Patience) -> tuple[Track[R], Window[R]]:
    """The page follows the last one."""
    moment_s = page.at_s - track.late_s
    dt_s = moment_s - track.base_at_s
    oldest_s = moment_s - patience.history_s
    kept = tuple(point for point in track.history if point[0] >= oldest_s)
    following = replace(
        track,
        base=page.reading,
        base_at_s=moment_s,
        read_at_s=page.at_s,
        start_s=page.start_s if page.start_s is not None else track.start_s,
        cpu_s=page.cpu_s,
        history=(*kept, (moment_s, page.progress)),
    )
    if track.late_s > patience.max_age_s:
        return following, Window(at_s=moment_s, problem=f"the page is {track.late_s:.0f} s late")
    late = f"the page is {track.late_s:.0f} s late" if track.late_s > 0.0 else None
    if dt_s > patience.history_s:
        problem = late or f"not seen for {dt_s:.0f} s: the rate since then is not used"
        return following, Window(current=page.reading, at_s=moment_s, problem=problem)
    return following, Window(
        current=page.reading, previous=track.base, dt_s=dt_s, at_s=moment_s, problem=late
    )


def _went_back(track: Track[R], page: Page[R], patience: Patience) -> tuple[Track[R], Window[R]]:
    """Counters fell within one process: the page is of an earlier moment, or nobody can tell."""
    remembered = track.before or track.history
    moment_s = moment_of(page.progress, remembered)
    if moment_s is None and page.start_s is None:
        return begin(page), Window(
            current=page.reading,
            at_s=page.at_s,
            problem="counters fell and the page names no start time: taken as a restart",
        )
    if moment_s is None:
        # at least that late; too late to be used, whatever is remembered
        late_s = max(page.at_s - remembered[0][0], 2.0 * patience.max_age_s)
        problem = "the page is older than all that is remembered of it"
    else:
        late_s = page.at_s - moment_s
        problem = f"the page is {late_s:.0f} s late"
    shown_s = page.at_s - late_s
    earlier = tuple(point for point in remembered if point[0] < shown_s)
    back = replace(
        begin(page),
        base_at_s=shown_s,
        late_s=late_s,
        before=track.before or track.history,
        history=(*earlier, (shown_s, page.progress)),
    )
    usable = page.reading if late_s <= patience.max_age_s else None
    return back, Window(current=usable, at_s=shown_s, problem=problem)


def _typical_per_s(history: History, start_s: float | None) -> Progress:
    """How fast each counter rose over the remembered pages, or else since the process started."""
    last_s, last = history[-1]
    first_s, first = history[0]
    if last_s > first_s:
        risen = zip(last, first, strict=True)
        return tuple(
            (b - a) / (last_s - first_s) if a is not None and b is not None else None
            for b, a in risen
        )
    if start_s is not None and last_s > start_s:
        return tuple(b / (last_s - start_s) if b is not None else None for b in last)
    return tuple(None for _ in last)


def moment_of(progress: Progress, history: History) -> float | None:
    """When a source had these counters, between two remembered pages; `None` if it never had."""
    for index in range(len(history) - 1, -1, -1):
        at_s, point = history[index]
        if any(c < p for c, p in _both(progress, point)):
            continue
        if index + 1 == len(history):
            return at_s
        next_s, after = history[index + 1]
        if any(c > n for c, n in _both(progress, after)):
            return None  # more than the next page had: a state that never was
        for now, low, high in zip(progress, point, after, strict=True):
            if now is not None and low is not None and high is not None and high > low:
                return at_s + (next_s - at_s) * (now - low) / (high - low)
        return at_s
    return None


def _caught_up(track: Track[R], page: Page[R]) -> bool:
    """Has a late page jumped to the present? Its counters then grow by the lag at once.

    Each counter's growth is held against how fast it typically rises: before the page was late,
    later while it is. The median of these ratios must exceed half of what a full jump would give.
    A counter that typically stands still tells nothing.
    """
    last_s, last = track.history[-1]
    dt_s = page.at_s - track.late_s - last_s
    if dt_s <= 0.0:
        return False
    known = track.before if len(track.history) < 3 else track.history
    typical = _typical_per_s(known, track.start_s)
    ratios = [
        (now - before) / dt_s / per_s
        for now, before, per_s in zip(page.progress, last, typical, strict=True)
        if now is not None and before is not None and per_s
    ]
    return bool(ratios) and median(ratios) >= 1.0 + 0.5 * track.late_s / dt_s


def _had_caught_up(track: Track[R], page: Page[R]) -> bool:
    """Did a late page jump to the present three pages ago, unnoticed as the load fell meanwhile?

    Such a window stands out on both sides: it holds the whole lag at the lower of the two rates
    beside it, where a mere change of the load would be at most the higher one.
    """
    if len(track.history) < 6:
        return False
    (early_s, early), (from_s, low), (to_s, high) = (track.history[-n] for n in (6, 4, 3))
    dt_s, after_s = to_s - from_s, page.at_s - track.late_s - to_s
    if from_s + track.late_s <= track.before[-1][0]:
        return False  # of the time before it was late
    over_lower: list[float] = []
    over_higher: list[float] = []
    for values in zip(early, low, high, page.progress, strict=True):
        if None not in values:
            a, b, c, d = (value or 0.0 for value in values)
            beside = sorted(((b - a) / (from_s - early_s), (d - c) / after_s))
            if beside[0] > 0.0:
                over_lower.append((c - b) / dt_s / beside[0])
                over_higher.append((c - b) / dt_s / beside[1])
    least = 1.0 + 0.5 * track.late_s / dt_s
    return bool(over_lower) and median(over_lower) >= least and median(over_higher) >= 1.5


def _both(one: Progress, other: Progress) -> list[tuple[float, float]]:
    return [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]


def _younger(one: float | None, other: float | None) -> bool:
    """Did process `one` start after `other`? Half a second is within what one process may say."""
    return one is not None and other is not None and one > other + 0.5
