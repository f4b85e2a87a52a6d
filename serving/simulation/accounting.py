"""What an engine page counts when, as vLLM 0.32's `IterationStats` does. Pure.

The latencies and lengths of a request are observed when it ends, its prompt when its first token
comes. A prefill replica sees requests of one token: no gap, decode time 0.
"""

from __future__ import annotations

from serving.simulation.sequence import Sequence
from serving.simulation.telemetry import ReplicaTelemetry


def count_admission(telemetry: ReplicaTelemetry, sequence: Sequence, *, connector: bool) -> None:
    """Prefix lookups of a request that is scheduled for the first time; there are no local hits.

    With a KV connector the tokens left are looked up there too: on decode all of them hit, which
    is the transfer and no cache win.
    """
    telemetry.prefix_cache_queries += sequence.prompt_tokens
    if connector:
        telemetry.external_prefix_cache_queries += sequence.prompt_tokens
    if sequence.source is not None:
        telemetry.external_prefix_cache_hits += sequence.prompt_tokens


def count_first_token(telemetry: ReplicaTelemetry, sequence: Sequence, now_s: float) -> None:
    """The first token of a request on this replica, and with it its prompt by source."""
    prompt = sequence.prompt_tokens
    telemetry.ttft.observe(now_s - sequence.arrived_s)
    telemetry.prompt_tokens += prompt
    if sequence.source is None:
        telemetry.computed_prompt_tokens += prompt
    else:
        telemetry.transferred_prompt_tokens += prompt


def count_finish(telemetry: ReplicaTelemetry, sequence: Sequence, now_s: float) -> None:
    """A request that came to its natural end at `now_s`."""
    first_s, scheduled_s, arrived_s = (
        sequence.first_token_s,
        sequence.scheduled_s,
        sequence.arrived_s,
    )
    tokens = sequence.max_tokens
    decode_s = now_s - first_s
    telemetry.e2e.observe(now_s - arrived_s)
    telemetry.queue_time.observe(scheduled_s - arrived_s)
    telemetry.prefill_time.observe(first_s - scheduled_s)
    telemetry.decode_time.observe(decode_s)
    telemetry.inference_time.observe(now_s - scheduled_s)
    telemetry.tpot.observe(decode_s / (tokens - 1) if tokens > 1 else 0.0)
    _count_lengths(telemetry, sequence, tokens)


def count_never_scheduled(
    telemetry: ReplicaTelemetry, sequence: Sequence, now_s: float, *, host_monotonic_s: float
) -> None:
    """A request whose KV could not be pulled, with vLLM 0.32's odd sums.

    It was never scheduled, so its queue time comes out as minus the host's monotonic clock and its
    prefill and inference times as plus that clock: a page that looks reset, and is not. Its prompt
    is in no token counter, though it gets a TTFT sample.
    """
    telemetry.finished_error += 1
    telemetry.ttft.observe(now_s - sequence.arrived_s)
    telemetry.e2e.observe(now_s - sequence.arrived_s)
    telemetry.queue_time.observe(-host_monotonic_s)
    telemetry.prefill_time.observe(host_monotonic_s)
    telemetry.inference_time.observe(host_monotonic_s)
    telemetry.decode_time.observe(0.0)
    telemetry.tpot.observe(0.0)
    _count_lengths(telemetry, sequence, 0)


def count_transfer(
    telemetry: ReplicaTelemetry, *, seconds: float, transferred_bytes: float, blocks: int
) -> None:
    """One finished pull, on the replica that pulled (the prefill side records none)."""
    telemetry.kv_transfer_time.observe(seconds)
    telemetry.kv_post_time.observe(KV_POST_S)
    telemetry.kv_transfer_bytes.observe(transferred_bytes)
    telemetry.kv_descriptors.observe(blocks)


KV_POST_S = 0.001  # the order that posting a read takes; nothing waits for it


def _count_lengths(telemetry: ReplicaTelemetry, sequence: Sequence, output_tokens: int) -> None:
    prompt = sequence.prompt_tokens
    telemetry.request_prompt_tokens.observe(prompt)
    telemetry.request_computed_tokens.observe(prompt)
    telemetry.request_output_tokens.observe(output_tokens)
    telemetry.request_max_tokens.observe(sequence.max_tokens)
    telemetry.request_preemptions.observe(sequence.preemptions)
