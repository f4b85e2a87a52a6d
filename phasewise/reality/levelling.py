"""The level of a fitted profile, by playing it: its shape stays, its mean times become live ones.

Least squares over a minute finds how costs relate, but what waits for what feeds back: a step that
is a little too slow makes batches larger, and those make it slower. So the costs of prefill, of
decode and of the link are each multiplied until a simulated run has the live means.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import replace

from phasewise.reality.recording import Recording
from phasewise.reality.simulated import Means, simulated_means
from serving.simulation.profile import EngineProfile

ROUNDS = 25
CLOSE_RATIO = 0.02
DAMPING = 0.6
"""Part of a correction that is made at once: the feedback makes the rest of it."""

_PREFILL = ("prefill_base_s", "prefill_s_per_token", "prefill_s_per_token_squared")
_DECODE = ("decode_base_s", "decode_s_per_sequence", "decode_s_per_kv_token")


def levelled(
    profile: EngineProfile, recording: Recording, live: Means, *, block_size_tokens: int
) -> EngineProfile:
    """The profile whose run comes closest to the live means; `profile` itself if none is closer."""
    best, best_miss = profile, float("inf")
    for _ in range(ROUNDS):
        means = simulated_means(recording, profile, block_size_tokens=block_size_tokens)
        factors = [
            wanted / found if wanted and found else 1.0
            for wanted, found in (
                (live.prefill_s, means.prefill_s),
                (live.gap_s, means.gap_s),
                (live.transfer_s, means.transfer_s),
            )
        ]
        miss = max(max(factor, 1.0 / factor) - 1.0 for factor in factors)
        if miss < best_miss:
            best, best_miss = profile, miss
        if miss <= CLOSE_RATIO:
            break
        prefill, decode, link = (factor**DAMPING for factor in factors)
        profile = _scaled(profile, prefill=prefill, decode=decode, link=link)
    return best


def _scaled(profile: EngineProfile, *, prefill: float, decode: float, link: float) -> EngineProfile:
    factors = {
        **dict.fromkeys(_PREFILL, prefill),
        **dict.fromkeys(_DECODE, decode),
        "kv_link_latency_s": link,
        "kv_link_bytes_per_s": 1.0 / link,
    }
    figures = {
        name: replace(figure, value=figure.value * factors.get(name, 1.0))
        for name, figure in profile.figures.items()
    }
    return replace(
        profile,
        figures=figures,
        prefill_base_s=figures["prefill_base_s"].value,
        prefill_s_per_token=figures["prefill_s_per_token"].value,
        prefill_s_per_token_squared=figures["prefill_s_per_token_squared"].value,
        decode_base_s=figures["decode_base_s"].value,
        decode_s_per_sequence=figures["decode_s_per_sequence"].value,
        decode_s_per_kv_token=figures["decode_s_per_kv_token"].value,
        kv_link_latency_s=figures["kv_link_latency_s"].value,
        kv_link_bytes_per_s=figures["kv_link_bytes_per_s"].value,
    )
