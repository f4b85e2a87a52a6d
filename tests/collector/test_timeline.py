"""One source's pages over time: usable, restarted, late, frozen or unbelievable."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from collector.timeline import Page, Patience, Track, Window, begin, judge, moment_of

PATIENCE = Patience()
CPU_PER_S, TOKENS_PER_S = 0.5, 100.0


def page(
    at_s: float, *, shows_s: float | None = None, start_s: float | None = 0.0, busy: bool = True
) -> Page[str]:
    """The page read at `at_s` that shows the steady source as it was at `shows_s`."""
    moment_s = at_s if shows_s is None else shows_s
    cpu_s = CPU_PER_S * moment_s
    return Page(
        reading=f"{moment_s:g}",
        at_s=at_s,
        progress=(cpu_s, TOKENS_PER_S * moment_s),
        start_s=start_s,
        cpu_s=cpu_s,
        busy=busy,
    )


def run(pages: Iterable[Page[str]], track: Track[str] | None = None) -> list[Window[str]]:
    """The windows of all pages but the first."""
    windows: list[Window[str]] = []
    for one in pages:
        if track is None:
            track = begin(one)
            continue
        track, window = judge(track, one, PATIENCE)
        windows.append(window)
    return windows


def test_two_pages_make_a_window() -> None:
    (window,) = run([page(100.0), page(105.0)])

    assert window == Window(current="105", previous="100", dt_s=5.0, at_s=105.0)


def test_after_a_missed_page_the_true_time_counts() -> None:
    (window,) = run([page(100.0), page(120.0)])

    assert (window.previous, window.dt_s) == ("100", 20.0)


def test_after_a_long_absence_there_is_no_rate() -> None:
    (window,) = run([page(100.0), page(300.0)])

    assert (window.current, window.previous) == ("300", None)
    assert window.problem is not None
    assert "not seen for 200 s" in window.problem


def test_the_same_page_twice_is_no_window() -> None:
    (window,) = run([page(100.0), page(100.0)])

    assert window.current is None


def test_a_restart_ends_the_window_and_the_next_one_counts() -> None:
    first, second = run(
        [
            page(100.0),
            page(105.0, shows_s=2.0, start_s=103.0),
            page(110.0, shows_s=7.0, start_s=103.0),
        ]
    )

    assert (first.current, first.previous) == ("2", None)
    assert first.problem == "restarted: its counters began anew"
    assert (second.previous, second.dt_s, second.problem) == ("2", 5.0, None)


def test_a_restart_is_seen_although_its_counters_rose() -> None:
    (window,) = run([page(1.0), page(6.0, start_s=5.0)])

    assert window.previous is None


def test_a_page_of_the_process_before_is_not_used() -> None:
    first, second = run(
        [page(100.0, start_s=50.0), page(105.0, start_s=0.0), page(110.0, start_s=50.0)]
    )

    assert first.current is None
    assert (second.previous, second.dt_s) == ("100", 10.0)


def test_start_times_that_jitter_are_one_process() -> None:
    (window,) = run([page(100.0, start_s=50.0), page(105.0, start_s=50.01)])

    assert window.previous == "100"


def steady(first_s: float, last_s: float) -> list[Page[str]]:
    return [page(float(s)) for s in range(int(first_s), int(last_s) + 1, 5)]


@pytest.mark.parametrize("late_s", [10.0, 12.5, 15.0])
def test_a_page_that_is_a_little_late_is_used_with_its_age(late_s: float) -> None:
    onset, after = run(
        [*steady(0, 100), page(105.0, shows_s=105.0 - late_s), page(110.0, shows_s=110.0 - late_s)]
    )[-2:]

    assert onset.previous is None
    assert onset.current is not None
    assert onset.at_s == pytest.approx(105.0 - late_s)
    assert after.at_s == pytest.approx(110.0 - late_s)
    assert after.dt_s == pytest.approx(5.0)
    assert after.problem is not None


@pytest.mark.parametrize("late_s", [20.0, 60.0, 62.5, 100.0])
def test_a_page_that_is_very_late_is_unknown_until_it_catches_up(late_s: float) -> None:
    late = [page(float(s), shows_s=s - late_s) for s in range(105, 405, 5)]
    windows = run([*steady(0, 100), *late, page(405.0), page(410.0)])
    during, jump, after = windows[20:80], windows[-2], windows[-1]

    assert all(w.current is None for w in during)
    assert {w.problem for w in during} == {f"the page is {late_s:.0f} s late"}
    assert (jump.current, jump.previous) == ("405", None)
    assert jump.problem == "no longer late: the jump is discarded"
    assert after == Window(current="410", previous="405", dt_s=5.0, at_s=410.0)


def test_a_page_older_than_all_that_is_remembered_is_at_least_that_late() -> None:
    window = run([*steady(300, 400), page(405.0, shows_s=50.0)])[-1]

    assert window.current is None
    assert window.problem == "the page is older than all that is remembered of it"


def test_a_late_page_that_becomes_later_is_followed() -> None:
    windows = run(
        [
            *steady(0, 100),
            page(105.0, shows_s=75.0),
            page(110.0, shows_s=40.0),
            page(115.0, shows_s=45.0),
        ]
    )

    assert [w.problem for w in windows[-3:]] == [
        "the page is 30 s late",
        "the page is 70 s late",
        "the page is 70 s late",
    ]


def test_counters_that_fell_with_no_start_time_are_late_if_they_were_seen_before() -> None:
    pages = [page(float(s), start_s=None) for s in range(0, 101, 5)]
    late, anew = (
        run([*pages, page(105.0, shows_s=shows_s, start_s=None)])[-1] for shows_s in (45.0, -1.0)
    )

    assert late.problem == "the page is 60 s late"
    assert anew.current == "-1"
    assert anew.problem is not None
    assert "taken as a restart" in anew.problem


def test_counters_that_fell_while_others_rose_are_believed_in_nothing() -> None:
    odd = Page(reading="odd", at_s=105.0, progress=(99.0, 1.0), start_s=0.0, cpu_s=99.0)
    first, second = run(
        [
            page(100.0),
            odd,
            Page(reading="on", at_s=110.0, progress=(100.0, 2.0), start_s=0.0, cpu_s=100.0),
        ]
    )

    assert first.current is None
    assert (second.previous, second.current) == ("odd", "on")


def test_a_page_whose_process_clock_stands_is_unknown_at_once_and_frozen_soon() -> None:
    windows = run(
        [page(100.0), *(page(s, shows_s=100.0, busy=False) for s in (105.0, 110.0)), page(115.0)]
    )

    assert [w.problem for w in windows] == [
        "the page does not change, 5 s by now",
        "the page is frozen, 10 s by now",
        None,
    ]
    assert [w.current for w in windows[:2]] == [None, None]
    assert (windows[2].previous, windows[2].dt_s) == ("100", 15.0)


def without_clock(at_s: float, tokens: float, *, busy: bool) -> Page[str]:
    return Page(reading=f"{at_s:g}", at_s=at_s, progress=(None, tokens), start_s=0.0, busy=busy)


def test_without_a_process_clock_busy_and_still_is_frozen_after_two_windows() -> None:
    pages = [without_clock(100.0 + 5.0 * i, 7.0, busy=True) for i in range(4)]
    windows = run([*pages, without_clock(120.0, 57.0, busy=True)])

    assert windows[0].previous == "100"  # one window: a request may just have come
    assert [w.problem for w in windows[1:3]] == [
        "the page is frozen, 5 s by now",
        "the page is frozen, 10 s by now",
    ]
    assert (windows[3].previous, windows[3].dt_s) == ("105", 15.0)


def test_without_a_process_clock_idle_and_still_cannot_be_told_from_idle() -> None:
    windows = run([without_clock(100.0 + 5.0 * i, 7.0, busy=False) for i in range(5)])

    assert [w.problem for w in windows] == [None] * 4


@pytest.mark.parametrize(
    ("progress", "moment_s"),
    [
        pytest.param((5.0, 50.0), 5.0, id="exactly"),
        pytest.param((7.5, 75.0), 7.5, id="between"),
        pytest.param((None, 75.0), 7.5, id="by-what-it-has"),
        pytest.param((10.0, 100.0), 10.0, id="the-last"),
        pytest.param((-1.0, -10.0), None, id="before-all"),
        pytest.param((6.0, 300.0), None, id="never"),
    ],
)
def test_the_moment_of_counters_is_found_in_the_past(
    progress: tuple[float | None, ...], moment_s: float | None
) -> None:
    history = ((0.0, (0.0, 0.0)), (5.0, (5.0, 50.0)), (10.0, (10.0, 100.0)))

    assert moment_of(progress, history) == moment_s
