"""Mean lengths are of requests, not of a moment: the last known ones stand in for unknown ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.learn import learn
from autoscaler.needs import NeedInput, prefill_compute
from autoscaler.state import LearnedState
from autoscaler.testing import TIER, Load, observed, recorded_run
from serving.types import UNKNOWN, Observation

SIZES = {"prefill": 6, "decode": 6}


def learned() -> LearnedState:
    states: list[LearnedState] = []
    recorded_run([Load()] * 20, sizes=SIZES, on_tick=lambda _, state: states.append(state))
    return states[-1]


def without_lengths(at_s: float, load: Load) -> Observation:
    seen = observed(at_s, load, SIZES)
    return replace(
        seen,
        router=None,
        samples=tuple(
            replace(one, request_prompt_tokens_mean=UNKNOWN, request_output_tokens_mean=UNKNOWN)
            for one in seen.samples
        ),
    )


@pytest.mark.parametrize("scale", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("looks", [1, 13, 100])
def test_a_pool_is_never_sized_for_prompts_of_one_token(scale: float, looks: int) -> None:
    state = learned()
    known, settings = state.pools[0], TIER.pools[0]
    assert state.now_s is not None
    start_s = state.now_s
    for index in range(looks):
        state = learn(state, without_lengths(start_s + 5.0 * (index + 1), Load(scale=scale)), TIER)

    assert state.demand.input_tokens_mean == pytest.approx(1111.0)
    assert state.demand.output_tokens_mean == pytest.approx(222.0)
    seen = NeedInput(
        tier=TIER,
        pool=settings,
        demand=state.demand,
        prefill_tokens_per_s=50_000.0 * scale,
        output_tokens_per_s=None,
        prefill=known.prefill,
        decode=known.decode,
        waiting_prefill_requests=None,
        serving_replicas=6,
        lead_s=60.0,
    )
    need = prefill_compute(seen)
    assert need is not None
    assert need.replicas <= 13
