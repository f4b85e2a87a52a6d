"""Arguments that an engine was started with, as far as its page tells them.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass

from serving.dialects.page import Page, label

_CACHE_CONFIG = "vllm:cache_config_info"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What `cache_config_info` tells of an engine; `None` where it does not."""

    block_size_tokens: int | None = None
    kv_capacity_tokens: int | None = None
    max_model_len_tokens: int | None = None


def engine_facts(page: Page) -> EngineFacts:
    """Engine arguments from the labels of the cache configuration, of one rank.

    The longest context is what the cache holds over how many of them it holds at once.
    """
    for labels in page.samples.get(_CACHE_CONFIG, {}):
        block = _number(label(labels, "block_size"))
        capacity = _number(label(labels, "kv_cache_size_tokens"))
        blocks = _number(label(labels, "num_gpu_blocks"))
        if capacity is None and block is not None and blocks is not None:
            capacity = block * blocks
        at_once = _number(label(labels, "kv_cache_max_concurrency"))
        longest = capacity / at_once if capacity is not None and at_once is not None else None
        return EngineFacts(
            block_size_tokens=_whole(block),
            kv_capacity_tokens=_whole(capacity),
            max_model_len_tokens=_whole(longest),
        )
    return EngineFacts()


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else 0.0
    except ValueError:  # these labels say "None" where the engine does not know
        return None
    return value if 0.0 < value < 2.0**53 else None


def _whole(value: float | None) -> int | None:
    return round(value) if value is not None and value >= 1.0 else None
