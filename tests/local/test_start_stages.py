"""The stages of a start, from what a real engine wrote to its log while it started."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from serving.local.startups import StartLog, StartRecord
from serving.types import StartStage

LOG = Path(__file__).parent.parent / "fixtures" / "vllm-0.32" / "start.log"
CLOCK = re.compile(r"\b11-30 (\d\d):(\d\d):(\d\d)\b")
ASKED_S = 2 * 3600 + 35 * 60 + 49.0  # half a minute of fetching before the process began
SPAWNED_S, HEALTHY_S, ANSWERED_S = ASKED_S + 27.0, ASKED_S + 142.0, ASKED_S + 143.5


def followed(lines: Iterable[str], *, cold: bool) -> StartRecord:
    """The record of a start whose log says this; a line without a clock is of the one before."""
    log = StartLog("serve-0001", "serve", asked_s=ASKED_S)
    log.enter(StartStage.WEIGHTS, ASKED_S)
    log.cold = cold
    now_s = SPAWNED_S
    log.enter(StartStage.PROCESS, now_s)
    for line in lines:
        told = CLOCK.search(line)
        if told is not None:
            hours, minutes, seconds = map(int, told.groups())
            now_s = hours * 3600.0 + minutes * 60.0 + seconds
        log.line(line, now_s)
    log.enter(StartStage.READY, HEALTHY_S)
    log.end(ANSWERED_S)
    return log.record()


def test_a_real_log_tells_process_weights_compile_and_first_answer() -> None:
    record = followed(LOG.read_text().splitlines(), cold=True)
    stages = dict(record.stages)

    assert list(stages) == [
        StartStage.PROCESS,
        StartStage.WEIGHTS,
        StartStage.COMPILE,
        StartStage.READY,
    ]
    assert stages[StartStage.WEIGHTS] == 27.0 + 2.0  # fetched, then loaded from 02:38:04 to :06
    assert stages[StartStage.READY] == 1.5
    assert record.ended_s is not None
    assert sum(stages.values()) == record.ended_s - record.asked_s


def test_a_log_that_does_not_tell_of_loading_leaves_process_and_weights_unknown() -> None:
    lines = [line for line in LOG.read_text().splitlines() if "oad" not in line]
    record = followed(lines, cold=False)

    assert list(dict(record.stages)) == [StartStage.COMPILE, StartStage.READY]


def test_lines_that_come_again_do_not_turn_a_start_back() -> None:
    lines = LOG.read_text().splitlines()

    again = [*lines, *(line for line in lines if "Starting to load" in line)]

    assert followed(again, cold=True) == followed(lines, cold=True)
