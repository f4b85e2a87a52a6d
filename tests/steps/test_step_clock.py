"""How long a step kept the engine, told from what vLLM says after it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest


def times(exporter, told, **how):
    """`told`: index, elapsed, gaps, the moment of the call, whether work is left."""
    clock = exporter.step.StepClock(**how)
    return [
        clock.time(index=i, elapsed_s=elapsed, gaps_s=gaps, now_s=now, leaves_work=left)
        for i, elapsed, gaps, now, left in told
    ]


def test_a_step_of_running_sequences_lasts_as_long_as_their_smallest_gap(exporter):
    found = times(exporter, [(4, 0.03, (), 1.0, True), (5, 0.010, (0.9, 0.014, 0.014), 1.02, True)])

    assert found[1] == (0.014, "gap")


def test_overlapped_steps_last_from_end_to_end(exporter):
    """Steps of 20 ms whose wait is seen for 4 ms only, since the core was busy with the next."""
    told = [(k, 0.004, (0.020,), 0.020 * k, True) for k in range(1, 6)]

    found = times(exporter, told, overlapped=True)

    assert [step.told_by for step in found] == ["elapsed", *["gap"] * 4]
    assert sum(step.seconds for step in found[1:]) == pytest.approx(0.080)


def test_overlapped_prompt_steps_last_from_record_to_record_while_work_is_left(exporter):
    told = [
        (1, 0.050, (), 1.00, True),
        (2, 0.048, (), 1.07, True),  # this call is late by 10 ms
        (3, 0.048, (), 1.12, False),
        (4, 0.049, (), 9.00, False),  # the engine idled before
    ]

    found = times(exporter, told, overlapped=True)

    assert [step.told_by for step in found] == ["elapsed", "records", "records", "elapsed"]
    assert found[1].seconds + found[2].seconds == pytest.approx(0.120)
    assert found[3].seconds == 0.049


def test_without_overlap_a_prompt_step_lasts_as_long_as_vllm_says(exporter):
    found = times(exporter, [(1, 0.05, (), 1.0, True), (2, 0.06, (), 1.2, True)])

    assert found[1] == (0.06, "elapsed")


def test_in_a_pipeline_gaps_span_several_steps_and_are_not_used(exporter):
    told = [(1, 0.01, (0.04,), 1.0, True), (2, 0.01, (0.04,), 1.02, True)]

    assert times(exporter, told, pipelined=True)[1].told_by == "records"


@pytest.mark.parametrize("index", [None, 7])
def test_after_a_step_that_was_not_seen_a_gap_may_span_two(exporter, index):
    told = [(1, 0.01, (), 1.0, True), (index, 0.02, (0.04,), 1.04, True)]

    assert times(exporter, told)[1] == (0.02, "elapsed")


@pytest.mark.parametrize("elapsed_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_no_step_has_is_unknown(exporter, elapsed_s):
    assert times(exporter, [(1, elapsed_s, (), 1.0, True)]) == [None]


@pytest.mark.parametrize(
    ("prefill_tokens", "sequences", "kind"),
    [(5, 0, "prefill"), (0, 5, "decode"), (5, 5, "mixed")],
)
def test_a_step_is_of_the_kind_that_it_scheduled(exporter, prefill_tokens, sequences, kind):
    assert exporter.step.Step(1, prefill_tokens, sequences, sequences, 0.0, 0.01).kind == kind


@pytest.mark.parametrize(
    ("prefills_s", "now_s", "left", "found"),
    [
        pytest.param((0.30, 0.08), 1.2, False, (0.08, "scheduled"), id="scheduled-in-it"),
        pytest.param((0.30,), 1.1, True, (pytest.approx(0.1), "records"), id="several-steps"),
        pytest.param((), 1.1, True, (pytest.approx(0.1), "records"), id="part-of-a-prompt"),
        pytest.param((), 9.0, False, None, id="nobody-can-tell"),
    ],
)
def test_where_the_core_executes_steps_itself_vllms_figure_is_not_used(
    exporter, prefills_s, now_s, left, found
):
    clock = exporter.step.StepClock(in_core=True)
    plain = {"elapsed_s": 0.001, "gaps_s": ()}
    clock.time(index=1, now_s=1.0, leaves_work=left, **plain)

    told = clock.time(index=2, now_s=now_s, leaves_work=left, prefills_s=prefills_s, **plain)

    assert told == found


@pytest.mark.parametrize(
    ("scheduler", "parallel", "how"),
    [
        ({"async_scheduling": True}, {}, (True, False, False)),
        ({}, {"distributed_executor_backend": "uni"}, (False, False, True)),
        ({}, {"distributed_executor_backend": "mp"}, (False, False, False)),
        ({}, {"pipeline_parallel_size": 2}, (True, True, False)),
    ],
)
def test_the_clock_is_of_the_way_in_which_the_engine_steps(exporter, scheduler, parallel, how):
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(**scheduler), parallel_config=SimpleNamespace(**parallel)
    )

    clock = exporter.logger.clock_of(config)

    assert (clock._overlapped, clock._pipelined, clock._in_core) == how
