"""What it costs when a series is not there, and the one line that brings it back.

One row for each of our words that a page may fill, by who writes the page. `blind` names what
cannot be decided or judged without it, `recorded` the recorded series that stay empty, so what is
drawn from them or alerts on them does too. Old names have their own table: what replaced each, and
what still asks for it in vain. Renames as in vllm-project/vllm (Apache-2.0),
`docs/usage/metrics.md`. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from serving.catalogue import CATALOGUE, MetricType, Owner
from serving.recorded import RECORDED
from serving.types import Phase


class Weight(StrEnum):
    """How much a missing series matters."""

    NEEDED = "needed"
    WANTED = "wanted"
    NICE = "nice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One of our words on a page: the names that fill it (newest first), and what absence costs.

    `phases`: the replicas that should have it. `later`: it comes with its first event, so that its
    absence may only mean that there was none.
    """

    owner: Owner
    field: str
    names: tuple[str, ...]
    weight: Weight
    phases: frozenset[Phase]
    blind: str
    mend: str
    recorded: tuple[str, ...] = ()
    later: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """A name of an older version: what replaced it (`None`: nothing), and what it costs to use."""

    name: str
    instead: str | None
    gone: str
    costs: str
    read: bool = False


_ALL = frozenset(Phase)
_P = frozenset({Phase.PREFILL, Phase.BOTH})
_D = frozenset({Phase.DECODE, Phase.BOTH})
_ONLY_P, _ONLY_D = frozenset({Phase.PREFILL}), frozenset({Phase.DECODE})
_NEEDED, _WANTED, _NICE = Weight.NEEDED, Weight.WANTED, Weight.NICE
_NEWER = "upgrade vLLM"
_NIXL = "start vLLM (0.12 or newer) with NixlConnector: other connectors export no transfers"
_ONE_SERVER = "run one API server: --api-server-count 1, PROMETHEUS_MULTIPROC_DIR not set"
_SINCE_016 = "upgrade vLLM to 0.16 or newer"
_STATS = "start vLLM without --disable-log-stats"
Row = tuple[str, Weight, frozenset[Phase], str, str]

# fmt: off
_VLLM: tuple[Row, ...] = (
    # our word, weight, phases, what goes blind, what mends it
    ("computed_prompt_tokens", _NEEDED, _P,
     "decision: how much prefill work there is, so prefill only ever holds its size", _SINCE_016),
    ("output_tokens", _NEEDED, _D,
     "decision: how many tokens decode must write, so decode only ever holds its size", _STATS),
    ("finished_requests", _WANTED, _ALL,
     "learning: what a replica can do is never learned and stays the prior", _STATS),
    ("itl", _WANTED, _D,
     "learning of the decode step, and the guard that grows decode when tokens come too slowly",
     "upgrade vLLM to 0.11 or newer"),
    ("tpot", _NICE, _D, "attainment of the token gap, where the endpoint picker cannot tell it",
     "upgrade vLLM to 0.11 or newer"),
    ("prefill_time", _WANTED, _P, "learning: prefill speed stays the prior", _NEWER),
    ("step_tokens", _WANTED, _P, "learning: prefill speed stays the prior", _NEWER),
    ("queue_time", _WANTED, _P, "the guard that grows prefill when prompts wait too long", _NEWER),
    ("waiting_requests", _WANTED, _ALL, "need: the backlog that waits is not worked off", _STATS),
    ("running_requests", _WANTED, _ALL,
     "learning of the decode step; a frozen page is told less surely", _STATS),
    ("kv_used_ratio", _WANTED, _D,
     "learning of contexts, and the guard that grows decode when a KV cache fills up",
     "upgrade vLLM to 0.9 or newer"),
    ("kv_capacity_tokens", _WANTED, _D,
     "need: decode is sized by speed alone, never by what its KV cache holds", _NEWER),
    ("request_prompt_tokens", _WANTED, _P,
     "length of prompts, where no endpoint picker tells it", _NEWER),
    ("request_output_tokens", _WANTED, _D,
     "length of answers, where no endpoint picker tells it", _NEWER),
    ("preemptions", _WANTED, _D, "windows spoiled by preemptions are learned from", _NEWER),
    ("kv_transfer_bytes", _WANTED, _ONLY_D, "how much KV moves between the pools", _NIXL),
    ("kv_transfer_time", _WANTED, _ONLY_D, "how long a KV transfer takes", _NIXL),
    ("kv_transfer_failures", _WANTED, _ONLY_D,
     "windows spoiled by failed transfers are learned from", _NIXL),
    ("kv_expired_requests", _NICE, _ONLY_P, "KV that decode never pulled is not seen",
     "upgrade vLLM to 2026's first versions or newer"),
    ("transferred_prompt_tokens", _NICE, _ONLY_D, "prompt tokens received by KV transfer",
     _SINCE_016),
    ("cached_prompt_tokens", _NICE, _P, "how much the prefix cache saves", _SINCE_016),
    ("deferred_requests", _NICE, _ONLY_D,
     "requests that wait for their KV count as waiting for room on decode",
     "upgrade vLLM to the versions since spring 2026"),
    ("prompt_tokens", _NICE, _ALL, "logical prompt length", _STATS),
    ("ttft", _NICE, _ALL, "first token by this replica's own clock", _NEWER),
    ("decode_time", _NICE, _D, "time of a request on decode", _NEWER),
)
_PROCESS: tuple[Row, ...] = (
    ("process_start_time_s", _NICE, _ALL, "a restart is told by fallen counters only",
     _ONE_SERVER),
    ("process_cpu_s", _NICE, _ALL, "a page that stands still while idle is not told",
     _ONE_SERVER),
)
_CLOCK = "attainment: what users wait is not known"
_EPP: tuple[Row, ...] = (
    ("requests", _WANTED, _ALL, "demand at arrival; what queues in front of the pools is not seen",
     "scrape the endpoint picker itself (port 9090)"),
    ("running_requests", _NICE, _ALL, "requests under way in the whole tier", "upgrade it"),
    ("failed_requests", _NICE, _ALL, "failures as users see them", "upgrade it"),
    ("input_tokens", _WANTED, _ALL, "length of prompts as users send them",
     "let engines report usage"),
    ("cached_tokens", _NICE, _ALL, "cached tokens as engines report them",
     "let engines report usage"),
    ("output_tokens", _WANTED, _ALL, "length of answers as users get them",
     "let engines report usage"),
    ("ttft", _WANTED, _ALL, _CLOCK, "upgrade it, and stream answers"),
    ("tpot", _WANTED, _ALL, _CLOCK, "upgrade it, and stream answers"),
    ("itl", _NICE, _ALL, "gaps between tokens as users see them",
     "upgrade it, and stream answers"),
)
_VLLM_ROUTER: tuple[Row, ...] = (
    ("requests", _WANTED, _ALL, "demand at arrival; what queues in front of the pools is not seen",
     "scrape the router's own port (--prometheus-port)"),
    ("running_requests", _NICE, _ALL, "requests under way in the whole tier", "upgrade it"),
    ("failed_requests", _NICE, _ALL, "failures as users see them", "upgrade it"),
)
_USED_TO_BE: tuple[tuple[str, str | None, str, str, bool], ...] = (
    # old name, new name, gone since, what it costs, read by phasewise in place of the new one
    ("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc", "0.11",
     "panels, alerts and scalers that ask for the new name see no KV cache fill up", True),
    ("vllm:gpu_prefix_cache_hits_total", "vllm:prefix_cache_hits_total", "0.11",
     "rules that take cached tokens off the prompt are empty: phase:prompt_tokens_cached:rate1m",
     True),
    ("vllm:gpu_prefix_cache_queries_total", "vllm:prefix_cache_queries_total", "0.11",
     "panels of the prefix hit rate are empty", False),
    ("vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds", "0.13",
     "panels, alerts and scalers that ask for the new name see no slow tokens", True),
    ("vllm:num_requests_swapped", None, "0.11",
     "no engine since V0 swaps; what asks for it is empty (see vllm:num_preemptions_total)", False),
    ("vllm:cpu_cache_usage_perc", None, "0.11", "what asks for it is empty", False),
    ("vllm:gpu_prefix_cache_hit_rate", "a rate of vllm:prefix_cache_hits_total", "0.11",
     "panels of the prefix hit rate are empty", False),
    ("vllm:cpu_prefix_cache_hit_rate", None, "0.11", "what asks for it is empty", False),
    ("vllm:time_in_queue_requests", "vllm:request_queue_time_seconds", "0.11",
     "panels of queueing time are empty", False),
    ("vllm:tokens_total", "vllm:prompt_tokens_total and vllm:generation_tokens_total", "0.11",
     "what asks for it is empty", False),
    ("vllm:avg_prompt_throughput_toks_per_s", "a rate of vllm:prompt_tokens_total", "0.11",
     "panels of throughput are empty", False),
    ("vllm:avg_generation_throughput_toks_per_s", "a rate of vllm:generation_tokens_total", "0.11",
     "panels of throughput are empty", False),
    ("vllm:spec_decode_draft_acceptance_rate",
     "vllm:spec_decode_num_accepted_tokens_total over .._num_draft_tokens_total", "0.11",
     "panels of speculative decoding are empty", False),
    ("vllm:spec_decode_efficiency", None, "0.11", "what asks for it is empty", False),
    ("vllm:spec_decode_num_emitted_tokens_total", None, "0.11", "what asks for it is empty", False),
    ("vllm:request_params_best_of", None, "0.11", "what asks for it is empty", False),
    ("vllm:model_forward_time_milliseconds", None, "0.11", "what asks for it is empty", False),
    ("vllm:prompt_tokens_recomputed_total", None, "the versions since April 2026",
     "what asks for it is empty", False),
    ("vllm:max_num_generation_tokens", "vllm:request_max_num_generation_tokens",
     "llm-d-inference-sim only", "what asks for vLLM's own name is empty", False),
)
# fmt: on


def _names(owner: Owner, field: str) -> tuple[str, ...]:
    return tuple(spec.name for spec in CATALOGUE if spec.owner is owner and spec.field == field)


def _recorded(owner: Owner, field: str) -> tuple[str, ...]:
    """The recorded series that are made of one of our words."""
    made = {f"{field}{end}" for end in ("", "_per_s", "_mean", "_mean_s", "_within_slo_ratio")}
    if field == "finished_requests":
        made.add("failed_requests_per_s")  # the same series, by another label
    return tuple(
        spec.name
        for spec in RECORDED
        if spec.of_user is (owner is Owner.EPP)
        and owner in (Owner.VLLM, Owner.EPP)
        and spec.measurement.removeprefix("hottest_") in made
    )


_MORE_NAMES = {  # our words that two series fill, the other one under another word
    (Owner.VLLM, "cached_prompt_tokens"): ("vllm:prompt_tokens_by_source_total",),
    (Owner.VLLM, "transferred_prompt_tokens"): ("vllm:prompt_tokens_by_source_total",),
}


def _expected() -> tuple[Expected, ...]:
    tables = (
        (Owner.VLLM, _VLLM),
        (Owner.PROCESS, _PROCESS),
        (Owner.EPP, _EPP),
        (Owner.VLLM_ROUTER, _VLLM_ROUTER),
    )
    return tuple(
        Expected(
            owner=owner,
            field=field,
            names=(*_MORE_NAMES.get((owner, field), ()), *_names(owner, field)),
            weight=weight,
            phases=phases,
            blind=blind,
            recorded=_recorded(owner, field),
            mend=mend,
            later=owner in (Owner.EPP, Owner.VLLM_ROUTER),
        )
        for owner, rows in tables
        for field, weight, phases, blind, mend in rows
    )


EXPECTED: tuple[Expected, ...] = _expected()
"""Every word that a page may fill, by who writes it."""

OUTDATED: tuple[Outdated, ...] = tuple(
    Outdated(name=name, instead=instead, gone=gone, costs=costs, read=read)
    for name, instead, gone, costs, read in _USED_TO_BE
)
"""Names of older versions."""

HISTOGRAMS: frozenset[str] = frozenset(
    spec.name for spec in CATALOGUE if spec.type is MetricType.HISTOGRAM
)
"""The names that stand on a page in three parts."""
