"""Which vLLM wrote a page, told by the names that it carries and lacks.

Names change with versions, and a page says no version of its own: what comes out is a range.
Renames as in vllm-project/vllm (Apache-2.0), `docs/usage/metrics.md`; the version in which
`prompt_tokens_by_source` came is known to about one release.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Set

Version = tuple[int, int]

SINCE: tuple[tuple[str, Version], ...] = (
    ("vllm:kv_cache_usage_perc", (0, 9)),
    ("vllm:inter_token_latency_seconds", (0, 11)),
    ("vllm:nixl_xfer_time_seconds", (0, 11)),
    ("vllm:prompt_tokens_by_source_total", (0, 16)),
)
"""A page with this name is of this version or newer; one without it is older (but for NIXL's)."""
UNTIL: tuple[tuple[str, Version], ...] = (
    ("vllm:gpu_cache_usage_perc", (0, 10)),
    ("vllm:gpu_prefix_cache_hits_total", (0, 10)),
    ("vllm:time_per_output_token_seconds", (0, 12)),
)
"""A page with this name is of this version or older."""
ONLY_V0 = frozenset(
    {
        "vllm:num_requests_swapped",
        "vllm:cpu_cache_usage_perc",
        "vllm:gpu_prefix_cache_hit_rate",
        "vllm:cpu_prefix_cache_hit_rate",
        "vllm:avg_prompt_throughput_toks_per_s",
        "vllm:avg_generation_throughput_toks_per_s",
    }
)
"""Names of the first engine (V0), which is gone by 0.11."""
_OPTIONAL = frozenset({"vllm:nixl_xfer_time_seconds"})
_TELLS = "vllm:prompt_tokens_total"


def vllm_versions(names: Set[str]) -> str | None:
    """The range in words, such as `0.16 or newer`; `None` if the names tell nothing or disagree.

    `names` are of series, without `_bucket`, `_sum`, `_count`. The absence of a name says
    something only on a page that has the ordinary ones.
    """
    oldest = max((version for name, version in SINCE if name in names), default=None)
    newest = min((version for name, version in UNTIL if name in names), default=None)
    if names & ONLY_V0:
        newest = min(newest or (0, 10), (0, 10))
    if _TELLS in names:
        missing = [(v[0], v[1] - 1) for n, v in SINCE if n not in names and n not in _OPTIONAL]
        newest = min([*missing, *([newest] if newest is not None else [])], default=None)
    if oldest is not None and newest is not None and oldest > newest:
        return None
    engine = " (engine V0)" if names & ONLY_V0 else ""
    match oldest, newest:
        case None, None:
            return None
        case None, (major, minor):
            return f"{major}.{minor} or older{engine}"
        case (major, minor), None:
            return f"{major}.{minor} or newer"
        case _:
            assert oldest is not None
            assert newest is not None
            low, high = (f"{v[0]}.{v[1]}" for v in (oldest, newest))
            return (low if low == high else f"{low} to {high}") + engine
