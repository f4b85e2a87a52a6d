"""What `phasewise run` says in its log of problems: when they begin, change or end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from collector.observe import ROUTER
from phasewise.problem_log import SOURCE, ProblemLog
from serving.testing import DECODE, PREFILL, make_observation, make_sample
from serving.types import Observation, RouterSample


def seen(
    at_s: float,
    *,
    source: tuple[str, ...] = (),
    prefill: tuple[str, ...] = (),
    router: tuple[str, ...] = (),
) -> Observation:
    samples = (
        replace(make_sample(PREFILL, at_s=at_s), problems=prefill),
        make_sample(DECODE, at_s=at_s),
    )
    front = RouterSample(source="epp", window_start_s=at_s - 5.0, window_s=5.0, problems=router)
    return replace(make_observation(*samples, at_s=at_s), problems=source, router=front)


def said(*ticks: tuple[Observation, ...]) -> list[list[tuple[str, str, str]]]:
    """By tick: level, where and why of every line."""
    log, found = ProblemLog("demo"), []
    for observations in ticks:
        with capture_logs() as lines:
            log.note(observations)
        found.append([(x["log_level"], x["where"], x.get("why", "")) for x in lines])
    return found


LATE = ("prefill-0001: the page is 30 s late",)
LATER = ("prefill-0001: the page is 35 s late",)
OTHER = ("prefill-0002: the page is 35 s late",)


@pytest.mark.parametrize(
    ("ticks", "lines"),
    [
        pytest.param([(seen(5.0),)], [[]], id="nothing-wrong"),
        pytest.param(
            [(seen(5.0, prefill=LATE),), (seen(10.0, prefill=LATER),)],
            [[("warning", "prefill", LATE[0])], []],
            id="it-only-counts-on",
        ),
        pytest.param(
            [(seen(5.0, prefill=LATE),), (seen(10.0, prefill=LATE + OTHER),)],
            [[("warning", "prefill", LATE[0])], [("warning", "prefill", OTHER[0])]],
            id="another-replica-too",
        ),
        pytest.param(
            [(seen(5.0, prefill=LATE),), (seen(10.0),), (seen(15.0, prefill=LATE),)],
            [
                [("warning", "prefill", LATE[0])],
                [("info", "prefill", "")],
                [("warning", "prefill", LATE[0])],
            ],
            id="over-and-again",
        ),
        pytest.param(
            [(seen(5.0, prefill=LATE), seen(10.0))],
            [[("warning", "prefill", LATE[0])]],
            id="not-in-the-newest-look-of-the-tick",
        ),
        pytest.param(
            [(seen(5.0, router=("router: no page: refused",)),)],
            [[("warning", ROUTER, "router: no page: refused")]],
            id="router",
        ),
        pytest.param(
            [(seen(5.0, source=("no list",)),), (seen(10.0, source=("no list",)),)],
            [[("warning", SOURCE, "no list")], []],
            id="source",
        ),
    ],
)
def test_a_problem_is_said_when_it_begins_changes_or_ends(
    ticks: list[tuple[Observation, ...]], lines: list[list[tuple[str, str, str]]]
) -> None:
    assert said(*ticks) == lines


def test_many_problems_at_once_are_one_line() -> None:
    with capture_logs() as lines:
        ProblemLog("demo").note(
            (seen(5.0, prefill=tuple(f"prefill-{n:04d}: no page: refused" for n in range(1000))),)
        )

    (line,) = lines
    assert line["more"] == 995
    assert "does not shrink" in line["event"]
    assert "doctor" in line["event"]
