"""Whether independent counts of one stretch of traffic agree: three sources, one table.

The load generator counts what it asked for and what came, the control plane's samples what the
engines' pages said, NIXL's own exporter the bytes that it moved. Nothing here corrects a count: a
part of the stretch for which a sample is unknown makes that count unknown.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from serving.dialects.page import Page, total
from serving.load.outcomes import RequestOutcome, totals
from serving.types import Observation, Phase, PhaseSample

NIXL_RECEIVED_BYTES = "agent_rx_bytes_total"
"""What a NIXL agent pulled (a READ counts on the reader alone), on its own exporter's page."""
NIXL_DROPPED_EVENTS = "agent_telemetry_events_dropped_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """How KV lies in the cache: bytes of one token over all layers, tokens of one block.

    vLLM moves whole blocks, so a prompt's last block costs as much as a full one.
    """

    bytes_per_token: int
    block_tokens: int

    def bytes_of(self, prompt_tokens: int) -> int:
        """What a prefilled prompt costs on the wire; generated tokens never travel."""
        blocks = -(-prompt_tokens // self.block_tokens)
        return blocks * self.block_tokens * self.bytes_per_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A count beside what it should be. `difference_ratio`: how far off, as a share of that."""

    what: str
    expected_by: str
    expected: float
    source: str
    found: float | None

    @property
    def difference_ratio(self) -> float | None:
        """0 where both are equal; infinite where something was found and nothing expected."""
        if self.found is None:
            return None
        if self.expected == 0.0:
            return 0.0 if self.found == 0.0 else math.inf
        return (self.found - self.expected) / self.expected


def counted_in(observations: Iterable[Observation], phase: Phase, name: str) -> float | None:
    """How many of a rate passed in a run of observations, over all pools of a phase.

    The sum of rate times window. `None` if a window's rate is unknown, or there is no window.
    `name` is a field of `PhaseSample` that ends in `_per_s`.
    """
    counts: list[float] = []
    for observation in observations:
        for sample in observation.samples:
            if sample.pool.phase is phase and sample.window_s > 0.0:
                rate = getattr(sample, name).value
                if rate is None:
                    return None
                counts.append(rate * sample.window_s)
    return math.fsum(counts) if counts else None


def blind_spots(observations: Iterable[Observation]) -> tuple[str, ...]:
    """Why a count over these observations may be wrong: whatever had no page or was estimated."""
    found: list[str] = []
    for observation in observations:
        for sample in observation.samples:
            if sample.window_s > 0.0:  # the first look sees no window
                found.extend(_of_sample(sample))
        found.extend(observation.problems)
    return tuple(dict.fromkeys(found))


def received_bytes(page: Page) -> float | None:
    """KV bytes that a NIXL agent pulled since it began, unless it admits to have lost events."""
    if total(page, NIXL_DROPPED_EVENTS):
        return None
    return total(page, NIXL_RECEIVED_BYTES)


def compare_counts(
    requests: Sequence[RequestOutcome],
    observations: Sequence[Observation],
    *,
    layout: KvLayout,
    nixl_bytes: float | None,
) -> tuple[Comparison, ...]:
    """Every count beside what the load generator, or arithmetic, says it must be.

    For a load whose prompts share no prefix, all of which went through prefill and decode.
    Prefill makes one token of each request (which decode makes again), so that its own requests are
    its output tokens, and no user's tokens are counted on it.
    """
    sums = totals(requests)
    served = [one for one in requests if one.failure is None]
    usage_prompt = sum(one.usage_prompt_tokens or 0 for one in served)
    usage_output = sum(one.usage_output_tokens or 0 for one in served)
    asked_output = sum(one.output_tokens for one in served)
    kv_bytes = sum(layout.bytes_of(one.input_tokens) for one in served)
    generator, arithmetic = "load generator", "arithmetic"

    def seen(phase: Phase, name: str) -> float | None:
        return counted_in(observations, phase, f"{name}_per_s")

    prefill, decode = Phase.PREFILL, Phase.DECODE
    computed = seen(prefill, "computed_prompt_tokens")
    transferred = seen(decode, "transferred_prompt_tokens")
    rows: list[tuple[str, str, float, str, float | None]] = [
        ("requests", generator, sums.served, "prefill", seen(prefill, "finished_requests")),
        ("requests", generator, sums.served, "decode", seen(decode, "finished_requests")),
        ("requests", generator, sums.served, "prefill output", seen(prefill, "output_tokens")),
        ("failed requests", generator, sums.failed, "decode", seen(decode, "failed_requests")),
        ("prompt tokens", generator, sums.prompt_tokens, "usage in answers", usage_prompt),
        ("prompt tokens", generator, sums.prompt_tokens, "prefill", seen(prefill, "prompt_tokens")),
        ("prompt tokens", generator, sums.prompt_tokens, "prefill computed", computed),
        ("prompt tokens", generator, sums.prompt_tokens, "decode transferred", transferred),
        ("output tokens", generator, sums.output_tokens, "asked for", asked_output),
        ("output tokens", generator, sums.output_tokens, "usage in answers", usage_output),
        ("output tokens", generator, sums.output_tokens, "decode", seen(decode, "output_tokens")),
        ("KV bytes", arithmetic, kv_bytes, "decode", seen(decode, "kv_transfer_bytes")),
        ("KV bytes", arithmetic, kv_bytes, "NIXL's exporter", nixl_bytes),
    ]
    return tuple(
        Comparison(what=what, expected_by=by, expected=float(expected), source=source, found=found)
        for what, by, expected, source, found in rows
    )


def largest_difference_ratio(comparisons: Iterable[Comparison]) -> float | None:
    """The size of the worst difference; `None` if any count is unknown, or there is none."""
    ratios = [one.difference_ratio for one in comparisons]
    known = [abs(ratio) for ratio in ratios if ratio is not None]
    return max(known) if known and len(known) == len(ratios) else None


def counts_table(comparisons: Iterable[Comparison]) -> Table:
    """One row for each comparison."""
    table = Table(title="independent counts", title_justify="left")
    for name in ("what", "by"):
        table.add_column(name)
    table.add_column("is", justify="right")
    table.add_column("by")
    table.add_column("is", justify="right")
    table.add_column("difference", justify="right")
    for one in comparisons:
        ratio = one.difference_ratio
        table.add_row(
            one.what,
            one.expected_by,
            f"{one.expected:,.0f}",
            one.source,
            "unknown" if one.found is None else f"{one.found:,.0f}",
            "unknown" if ratio is None else f"{ratio:+.3%}",
        )
    return table


def _of_sample(sample: PhaseSample) -> list[str]:
    said = list(sample.problems)
    if sample.replicas_reporting < sample.replicas_expected:
        seen, all_of_them = sample.replicas_reporting, sample.replicas_expected
        said.append(f"{sample.pool}: {seen} of {all_of_them} replicas reported")
    return said
