"""Recordings that are made here: a simulated pair in the place of a live one."""

from __future__ import annotations

import random
from dataclasses import replace

from phasewise.reality.recording import TARGETS, About, PlayedRequest, RecordedPage, Recording
from phasewise.reality.simulated import simulated_pages
from serving.simulation.profile import EngineProfile, load_profile

BLOCK_SIZE_TOKENS = 128

ABOUT = About(
    machine="a machine that is none",
    engine="simulated",
    router="simulated",
    model="tiny",
    load="made here",
    urls={"prefill": "http://127.0.0.1:1", "decode": "http://127.0.0.1:2"},
    max_model_len=4096,
    max_num_seqs=32,
    max_num_batched_tokens=2048,
)


def known_profile() -> EngineProfile:
    """Costs of the size that a tiny model has on a CPU."""
    return replace(
        load_profile("llama-3.1-8b-h100"),
        prefill_base_s=0.01,
        prefill_s_per_token=4e-5,
        prefill_s_per_token_squared=1e-8,
        decode_base_s=0.003,
        decode_s_per_sequence=3e-4,
        decode_s_per_kv_token=1e-7,
        kv_bytes_per_token=16384.0,
        kv_capacity_tokens=20480,
        kv_link_bytes_per_s=2e9,
        kv_link_latency_s=0.001,
    )


def requests(*, seconds: float = 20.0, seed: int = 1) -> tuple[PlayedRequest, ...]:
    rng = random.Random(seed)
    at_s, made = 1.0, []
    while (at_s := at_s + rng.expovariate(2.5)) < seconds:
        made.append(
            PlayedRequest(
                t_s=at_s,
                input_tokens=rng.randint(64, 1500),
                output_tokens=rng.randint(1, 128),
                ttft_s=0.1,
                e2e_s=0.2,
                status=200,
            )
        )
    return tuple(made)


def recording(*, seconds: float = 20.0, profile: EngineProfile | None = None) -> Recording:
    """A simulated pair's pages, each second until all answers are there."""
    empty = Recording(
        about=ABOUT,
        requests=requests(seconds=seconds),
        pages=tuple(
            RecordedPage(at_s=float(second), target=target, text="")
            for second in range(int(seconds) + 6)
            for target in TARGETS
        ),
    )
    pages = simulated_pages(empty, profile or known_profile(), block_size_tokens=BLOCK_SIZE_TOKENS)
    return replace(empty, pages=pages)
