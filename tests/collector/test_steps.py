"""What step exporters added in a window, over the replicas of a pool and past restarts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from collector.exposition import read_page
from collector.observe import Member, ObserverState, step
from serving.dialects.vllm import WANTED, replica_reading
from serving.step_sums import StepReading, StepSums, added, one_step
from serving.testing import DECODE, make_pool_state
from serving.types import Phase, ReplicaReading, ReplicaState

REAL = Path(__file__).parents[1] / "fixtures" / "vllm-0.32" / "single-with-steps.prom"
NONE = StepReading(prefill=StepSums(), decode=StepSums(), mixed=StepSums())
ONE = one_step(prefill_tokens=0, sequences=4, kv_tokens=1_000, seconds=0.03)


def stepped(times):
    total = StepSums()
    for _ in range(times):
        total = added(total, ONE)
    return dataclasses.replace(NONE, decode=total)


def reading(replica, at_s, steps, *, born_s=1.0):
    return ReplicaReading(
        replica=replica,
        at_s=at_s,
        process_start_time_s=born_s,
        process_cpu_s=at_s - born_s,
        output_tokens=at_s - born_s,
        steps=steps,
    )


def sampled(*looks):
    """The last sample of a decode pool; each look holds the readings of its replicas."""
    state = ObserverState()
    for readings in looks:
        now_s = readings[0].at_s
        names = [one.replica for one in readings]
        pool = make_pool_state(DECODE, at_s=now_s, desired=len(names))
        state, seen = step(
            state,
            now_s=now_s,
            readings={one.replica: one for one in readings},
            router=None,
            pools=[pool],
            members={n: Member(pool=DECODE.name, state=ReplicaState.READY) for n in names},
            slo=None,
        )
    return seen.samples[0]


def test_the_windows_steps_of_all_replicas_are_added_up():
    sample = sampled(
        [reading("a", 100.0, stepped(2)), reading("b", 100.0, stepped(7))],
        [reading("a", 105.0, stepped(5)), reading("b", 105.0, stepped(8))],
    )

    assert sample.steps is not None
    assert sample.steps.decode.steps == 4.0
    assert sample.steps.decode.sequences == 16.0


def test_a_replica_without_the_exporter_adds_nothing_and_alone_leaves_it_unknown():
    with_it = [reading("a", 100.0, stepped(2)), reading("a", 105.0, stepped(5))]
    without = [reading("b", 100.0, None), reading("b", 105.0, None)]
    both = sampled(*([x, y] for x, y in zip(with_it, without, strict=True)))

    assert both.steps is not None
    assert both.steps.decode.steps == 3.0
    assert sampled(*([y] for y in without)).steps is None


def test_a_restart_within_the_window_begins_anew():
    sample = sampled(
        [reading("a", 100.0, stepped(50))], [reading("a", 105.0, stepped(3), born_s=102.0)]
    )
    after = sampled(
        [reading("a", 100.0, stepped(50))],
        [reading("a", 105.0, stepped(3), born_s=102.0)],
        [reading("a", 110.0, stepped(9), born_s=102.0)],
    )

    assert sample.steps is None
    assert after.steps is not None
    assert after.steps.decode.steps == 6.0


def test_sums_that_fall_are_said_and_not_used():
    sample = sampled([reading("a", 100.0, stepped(50))], [reading("a", 105.0, stepped(3))])

    assert sample.steps is None
    assert "a: the sums of its steps grew in no way that steps can" in sample.problems


def test_a_real_page_carries_the_sums_of_real_steps():
    body = REAL.read_bytes()

    found = replica_reading(read_page(body, WANTED), replica="single", at_s=1.0, phase=Phase.BOTH)

    assert found.steps is not None
    kinds = (found.steps.prefill, found.steps.decode, found.steps.mixed)
    assert found.step_tokens is not None
    assert sum(k.steps for k in kinds) == found.step_tokens.count
    assert sum(k.prefill_tokens for k in kinds) == found.computed_prompt_tokens
    assert found.output_tokens is not None
    assert found.finished_requests is not None  # each got its first token from a prompt's step
    decoded = found.output_tokens - found.finished_requests
    assert sum(k.decode_tokens for k in kinds) == decoded


def test_a_page_that_lost_one_of_the_series_has_none_of_them():
    lines = REAL.read_text().splitlines(keepends=True)
    kept = [line for line in lines if "step_seconds_squared_total{" not in line]

    found = replica_reading(
        read_page("".join(kept).encode(), WANTED), replica="single", at_s=1.0, phase=Phase.BOTH
    )

    assert found.steps is None
    assert found.output_tokens is not None
