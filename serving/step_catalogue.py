"""The series of the step exporter, which a plugin adds to a vLLM engine's own page.

Sums over engine steps, and what says whether they can be had. The plugin is the distribution in
`serving/vllm_steps/`; its tests hold it to these rows. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Mapping

from serving.catalogue import MetricSpec, MetricType, Owner, Unit

_C, _G, _H = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM
_ENGINE = ("engine", "model_name")
_KIND = (*_ENGINE, "kind")
_ABSENT = "no step exporter, or vLLM does not tell of its steps: not known, never zero"
_PRODUCT = "sum over steps of {}: for a fit"

# fmt: off
_ROWS: tuple[tuple[str, MetricType, Unit, tuple[str, ...], str, str], ...] = (
    ("phasewise_step_exporter_info", _G, Unit.INFO, (*_ENGINE, "version", "problem"), "",
     "1 for what holds now: an empty problem, or in words why steps are not known"),
    ("phasewise_step_time_seconds", _H, Unit.SECONDS, _KIND, "",
     "how long a step kept the engine"),
    ("phasewise_step_untimed_tokens_total", _C, Unit.TOKENS, (*_ENGINE, "phase"), "",
     "tokens scheduled in steps whose time nobody could tell; they are in no other sum"),
    ("phasewise_steps_total", _C, Unit.EVENTS, _KIND, "steps",
     "engine steps that scheduled tokens, by kind: prefill, decode, mixed"),
    ("phasewise_step_prefill_requests_total", _C, Unit.REQUESTS, _KIND, "steps",
     "requests of which prompt tokens were scheduled, once for each step"),
    ("phasewise_step_prefill_tokens_total", _C, Unit.TOKENS, _KIND, "steps",
     "prompt tokens scheduled; one for each request whose KV came from elsewhere"),
    ("phasewise_step_decode_tokens_total", _C, Unit.TOKENS, _KIND, "steps",
     "tokens scheduled for running sequences, drafted ones too"),
    ("phasewise_step_sequences_total", _C, Unit.REQUESTS, _KIND, "steps",
     "running sequences scheduled, once for each step: over steps, the mean batch"),
    ("phasewise_step_kv_tokens_total", _C, Unit.TOKENS, _KIND, "steps",
     "tokens whose KV was resident, once for each step, in whole blocks"),
    ("phasewise_step_seconds_total", _C, Unit.SECONDS, _KIND, "steps",
     "time that steps kept the engine: over seconds, the share in which it was busy"),
    ("phasewise_step_prefill_tokens_squared_total", _C, Unit.PRODUCT, _KIND, "steps",
     _PRODUCT.format("prompt tokens squared")),
    ("phasewise_step_sequences_squared_total", _C, Unit.PRODUCT, _KIND, "steps",
     _PRODUCT.format("sequences squared")),
    ("phasewise_step_kv_tokens_squared_total", _C, Unit.PRODUCT, _KIND, "steps",
     _PRODUCT.format("KV tokens squared")),
    ("phasewise_step_seconds_squared_total", _C, Unit.PRODUCT, _KIND, "steps",
     _PRODUCT.format("seconds squared")),
    ("phasewise_step_prefill_tokens_sequences_total", _C, Unit.PRODUCT, _KIND, "steps",
     _PRODUCT.format("prompt tokens times sequences")),
    ("phasewise_step_prefill_tokens_kv_tokens_total", _C, Unit.PRODUCT, _KIND, "steps",
     _PRODUCT.format("prompt tokens times KV tokens")),
    ("phasewise_step_sequences_kv_tokens_total", _C, Unit.PRODUCT, _KIND, "steps",
     _PRODUCT.format("sequences times KV tokens")),
    ("phasewise_step_seconds_prefill_tokens_total", _C, Unit.PRODUCT, _KIND, "steps",
     _PRODUCT.format("seconds times prompt tokens")),
    ("phasewise_step_seconds_sequences_total", _C, Unit.PRODUCT, _KIND, "steps",
     _PRODUCT.format("seconds times sequences")),
    ("phasewise_step_seconds_kv_tokens_total", _C, Unit.PRODUCT, _KIND, "steps",
     _PRODUCT.format("seconds times KV tokens")),
)
# fmt: on

STEP_SERIES: tuple[MetricSpec, ...] = tuple(
    MetricSpec(
        name=name,
        type=kind,
        unit=unit,
        labels=labels,
        help=meaning,
        absence=_ABSENT,
        owner=Owner.STEPS,
        field=field,
    )
    for name, kind, unit, labels, field, meaning in _ROWS
)
"""All rows; those with a field are read, the others are for people."""

STEP_SERIES_BY_NAME: Mapping[str, MetricSpec] = {spec.name: spec for spec in STEP_SERIES}
"""The same by name."""
