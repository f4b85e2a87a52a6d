"""The step exporter's sums on an engine's page, in our words.

Written by the vLLM plugin in `serving/vllm_steps/`. Ranks of one process (label `engine`) are
added up; where one series lacks one of them, or a kind of step, nothing of it is known.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from serving.dialects.page import Page, label, total
from serving.step_sums import StepReading, StepSums

STEP_SERIES = {
    "steps": "phasewise_steps_total",
    "prefill_requests": "phasewise_step_prefill_requests_total",
    "prefill_tokens": "phasewise_step_prefill_tokens_total",
    "decode_tokens": "phasewise_step_decode_tokens_total",
    "sequences": "phasewise_step_sequences_total",
    "kv_tokens": "phasewise_step_kv_tokens_total",
    "seconds": "phasewise_step_seconds_total",
    "prefill_tokens_squared": "phasewise_step_prefill_tokens_squared_total",
    "sequences_squared": "phasewise_step_sequences_squared_total",
    "kv_tokens_squared": "phasewise_step_kv_tokens_squared_total",
    "seconds_squared": "phasewise_step_seconds_squared_total",
    "prefill_tokens_sequences": "phasewise_step_prefill_tokens_sequences_total",
    "prefill_tokens_kv_tokens": "phasewise_step_prefill_tokens_kv_tokens_total",
    "sequences_kv_tokens": "phasewise_step_sequences_kv_tokens_total",
    "seconds_prefill_tokens": "phasewise_step_seconds_prefill_tokens_total",
    "seconds_sequences": "phasewise_step_seconds_sequences_total",
    "seconds_kv_tokens": "phasewise_step_seconds_kv_tokens_total",
}
"""The series of each sum."""

KINDS = ("prefill", "decode", "mixed")


def step_reading(page: Page) -> StepReading | None:
    """The sums of all kinds of steps; `None` where the page has them not, or not whole."""
    series = [page.samples.get(name) for name in STEP_SERIES.values()]
    first = series[0]
    if not first or any(each is None or each.keys() != first.keys() for each in series):
        return None
    kinds = {kind: _sums(page, kind) for kind in KINDS}
    prefill, decode, mixed = (kinds[kind] for kind in KINDS)
    if prefill is None or decode is None or mixed is None:
        return None
    return StepReading(prefill=prefill, decode=decode, mixed=mixed)


def _sums(page: Page, kind: str) -> StepSums | None:
    found: dict[str, float] = {}
    for field, name in STEP_SERIES.items():
        value = total(page, name, keep=lambda labels: label(labels, "kind") == kind)
        if value is None:
            return None
        found[field] = value
    return StepSums(**found)
