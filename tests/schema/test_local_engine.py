"""The `local` part of a variant: everything has a default, and what cannot be is refused."""

from __future__ import annotations

from typing import Any

import pytest

from serving.errors import Misconfigured
from serving.schema.document import as_model
from serving.schema.local_engine import LocalEngine, LocalModel, StepDelay


def _read(document: dict[str, Any]) -> LocalEngine:
    return as_model(document, LocalEngine, where="here")


def test_an_empty_part_is_a_small_model_at_full_speed() -> None:
    local = _read({})

    assert local == LocalEngine(
        model=LocalModel(
            layers=2, hidden_size=128, attention_heads=4, kv_heads=2, head_dim=64, seed=0
        ),
        step_delay=None,
        cpu_cores=None,
        weights_bytes_per_second=None,
        role_flip=True,
    )
    assert _read({"stepDelay": {}}).step_delay == StepDelay()


@pytest.mark.parametrize(
    ("figures", "per_token_bytes"),
    [
        ({}, 2048),  # keys and values x 2 layers x 2 heads x 64 x 4 bytes
        ({"layers": 4, "attentionHeads": 8, "kvHeads": 8, "headDim": 128}, 32768),
        ({"layers": 1, "kvHeads": 1, "headDim": 32}, 256),
    ],
)
def test_the_kv_of_a_token_follows_from_the_figures(
    figures: dict[str, int], per_token_bytes: int
) -> None:
    assert _read({"model": figures}).model.kv_bytes_per_token == per_token_bytes


WRONG = [
    ({"model": {"kvHeads": 3}}, "here: model.kvHeads: does not divide .* expected a divisor of 4"),
    ({"model": {"headDim": 48}}, "here: model.headDim: .* found 48, expected a multiple of 32"),
    ({"model": {"layers": 0}}, r"here: model.layers: .* found 0, expected a number of at least 1"),
    ({"model": {"seed": -1}}, "here: model.seed: .* found -1"),
    ({"model": {"hiddenSize": 1.5}}, "here: model.hiddenSize: .* expected a whole number"),
    ({"stepDelay": {"baseSeconds": -0.1}}, "here: stepDelay.baseSeconds: .* found -0.1"),
    ({"stepDelay": {"baseSeconds": 61}}, "expected a number of at most 60"),
    ({"stepDelay": {"baseMs": 10}}, "here: stepDelay.baseMs: unknown key: .* baseSeconds"),
    ({"cpuCores": 0}, "here: cpuCores: .* found 0, expected a number above 0"),
    ({"weightsBytesPerSecond": 0.0}, "here: weightsBytesPerSecond: .* at least 1"),
    ({"roleFlip": "yes"}, "here: roleFlip: .* found 'yes', expected true or false"),
]


@pytest.mark.parametrize(("document", "words"), WRONG)
def test_what_cannot_be_is_one_sentence(document: dict[str, Any], words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        _read(document)
