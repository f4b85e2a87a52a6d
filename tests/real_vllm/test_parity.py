"""Greedy answers of prefill and decode apart are those of one engine that does both.

If any KV arrived wrong, answers would part. That the answers tell wrong KV from right is shown
first: a prompt of which only the last token stays the same, which is all that decode computes by
itself, is answered otherwise.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serving.load.asking import Prompts
from serving.load.parity import Parity, answer, compare
from tests.real_vllm.live import live_pair

pytestmark = pytest.mark.vllm

NUMBER = 50
PROMPTS = [Prompts(seed=7).ids(number, 20 + number * 37) for number in range(NUMBER)]
OTHERS = [
    [*Prompts(seed=8).ids(number, len(prompt) - 1), prompt[-1]]
    for number, prompt in enumerate(PROMPTS)
]


async def _asked(pair_url: str, alone_url: str) -> tuple[Parity, int]:
    parity = await compare(pair_url, alone_url, PROMPTS, model="tiny", output_tokens=32)
    otherwise = 0
    for prompt, other in zip(PROMPTS[:10], OTHERS[:10], strict=True):
        otherwise += not await same(alone_url, prompt, other)
    return parity, otherwise


async def same(url: str, prompt: list[int], other: list[int]) -> bool:
    """Whether one server answers two prompts equally."""
    first, second = [
        await answer(url, ids, model="tiny", output_tokens=32) for ids in (prompt, other)
    ]
    return first.token_ids == second.token_ids


def test_fifty_greedy_answers_equal_those_of_one_engine(tmp_path: Path) -> None:
    with live_pair(tmp_path, with_alone=True) as pair:
        parity, otherwise = asyncio.run(_asked(pair.url, pair.alone_url))

    assert otherwise == 10
    assert (parity.equal, parity.compared) == (NUMBER, NUMBER), parity.words
