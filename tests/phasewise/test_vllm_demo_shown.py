"""What the demo on real engines claims, and when it must not claim it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from phasewise.vllm_demo.shown import PoolChange, Shown

UP = PoolChange(at_s=12.0, pool="prefill", before=1, after=2)
DOWN = PoolChange(at_s=80.0, pool="prefill", before=2, after=1)
GOOD = Shown(
    ready_after_s=31.0,
    requests=400,
    failed_requests=0,
    output_tokens=20_000,
    attainment_ratio=0.97,
    compared_answers=50,
    equal_answers=50,
    transfers=400,
    transferred_bytes=3_000_000_000,
    changes=(UP, DOWN),
    flips=0,
)


def test_everything_held_and_is_said_with_its_figures() -> None:
    said = GOOD.sentence()

    assert GOOD.faults() == ()
    assert said.startswith("shown: ")
    for part in ("50 of 50", "400 requests, 0 failed", "3,000 MB in 400", "prefill 1 to 2 at 12 s"):
        assert part in said


def test_a_flip_counts_where_no_pool_became_smaller() -> None:
    assert replace(GOOD, changes=(UP,), flips=1).faults() == ()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"requests": 0}, "no request"),
        ({"failed_requests": 1}, "1 requests failed"),
        ({"equal_answers": 49}, "only 49 of 50"),
        ({"compared_answers": 0, "equal_answers": 0}, "only 0 of 0"),
        ({"transfers": None, "transferred_bytes": None}, "no KV"),
        ({"transfers": 0, "transferred_bytes": 0}, "no KV"),
        ({"changes": (DOWN,)}, "made no pool larger"),
        ({"changes": (UP,)}, "made no pool smaller"),
        ({"changes": ()}, "made no pool larger"),
        ({"left": ("vllm 123",)}, "left behind: vllm 123"),
    ],
)
def test_whatever_did_not_hold_is_named(changed: dict[str, Any], words: str) -> None:
    shown = replace(GOOD, **changed)

    assert any(words in fault for fault in shown.faults())
    assert shown.sentence().startswith("NOT shown (")
