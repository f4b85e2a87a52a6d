"""The series that phasewise writes about itself, `phasewise_*`: what nobody else can know.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Mapping

from serving.catalogue import MetricSpec, MetricType, Owner, Unit

POOL = ("tier", "pool", "phase")
TIER = ("tier",)
SECONDS_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0)
"""Bucket bounds of the durations, in seconds."""

_C, _G, _H = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM
_STATE = "what was asked did not answer, or phasewise does not run: not known, never zero"
_PLAN = "the plan could not say: not known, never zero"
_KINDS = "no such start was seen, or its source does not say: not known, never zero"
_LATER = "nothing of the kind so far"
_TRACED = "no traces come, or no such part was known"
Row = tuple[str, MetricType, Unit, tuple[str, ...], str, str]

# fmt: off
_ROWS: tuple[Row, ...] = (
    # name, type, unit, labels, what absence means, meaning
    ("phasewise_replicas", _G, Unit.REPLICAS, (*POOL, "state"), _STATE,
     "replicas by state: starting, ready, draining"),
    ("phasewise_desired_replicas", _G, Unit.REPLICAS, POOL, _STATE,
     "replicas that the scale target is asked to have now"),
    ("phasewise_target_replicas", _G, Unit.REPLICAS, POOL, _PLAN,
     "replicas that the plan decided on; nobody acts on it in advise mode"),
    ("phasewise_wanted_replicas", _G, Unit.REPLICAS, POOL, _PLAN,
     "replicas that the need alone asks for, before limits and holds"),
    ("phasewise_need_replicas", _G, Unit.REPLICAS, (*POOL, "resource"), _PLAN,
     "replicas that each resource needs, before rounding; the largest binds"),
    ("phasewise_forecast_tokens_per_second", _G, Unit.TOKENS_PER_S, (*POOL, "bound"), _PLAN,
     "forecast at the pool's lead, of input tokens (prefill) or output tokens: expected, and upper "
     "(what the pool is sized for)"),
    ("phasewise_demand_tokens_per_second", _G, Unit.TOKENS_PER_S, ("tier", "phase"), _PLAN,
     "work offered now: uncached input tokens (prefill), output tokens (decode)"),
    ("phasewise_capacity_tokens_per_second", _G, Unit.TOKENS_PER_S, POOL, _PLAN,
     "what one replica is believed to carry within the SLO; absent on pools of both phases"),
    ("phasewise_demand_ratio", _G, Unit.RATIO, TIER, _PLAN,
     "needed prefill replicas over needed decode replicas, before rounding"),
    ("phasewise_replica_ratio", _G, Unit.RATIO, TIER, _STATE,
     "ready prefill replicas over ready decode replicas; absent while no decode replica is ready"),
    ("phasewise_lead_seconds", _G, Unit.SECONDS, (*POOL, "share"), _PLAN,
     "how long a new replica takes to serve, as learned from starts and counted by the plan: a "
     "share of 0.5 and of 0.95 of them is at most this long"),
    ("phasewise_lead_by_kind_seconds", _G, Unit.SECONDS, (*POOL, "kind", "share"), _KINDS,
     "the same for each kind of start: cold (weights from their source), warm, unknown"),
    ("phasewise_start_stage_seconds", _G, Unit.SECONDS, (*POOL, "kind", "stage"), _KINDS,
     "median time that a stage of a start took, by kind of start"),
    ("phasewise_decision_info", _G, Unit.INFO, (*POOL, "reason"), _PLAN,
     "the reason of the last decision, in its label"),
    ("phasewise_decisions_total", _C, Unit.EVENTS, (*POOL, "action", "reason"), _LATER,
     "decisions by what they did (up, down, hold, unknown) and why, since the process started"),
    ("phasewise_hold_seconds", _G, Unit.SECONDS, POOL,
     "the pool is not held: it may be changed, or has what it needs",
     "for how long the pool has been kept at its size for another reason than that it fits"),
    ("phasewise_source_age_seconds", _G, Unit.SECONDS, ("tier", "source"),
     "the source has never answered: not known, never zero",
     "age of the last good sample of a source: a pool by its name, or router"),
    ("phasewise_source_coverage_ratio", _G, Unit.RATIO, ("tier", "source"),
     "no replica was expected, or the pool was not seen",
     "share of a pool's ready replicas whose page was good at the last look"),
    ("phasewise_problems", _G, Unit.EVENTS, ("tier", "source"), _STATE,
     "problems of each source at the last look: a pool by its name, router, discovery, plan"),
    ("phasewise_kv_used_tokens", _G, Unit.TOKENS, POOL, _STATE,
     "tokens whose KV is held in a pool"),
    ("phasewise_kv_capacity_tokens", _G, Unit.TOKENS, POOL, _STATE,
     "tokens whose KV a pool's ready replicas can hold"),
    ("phasewise_slo_seconds", _G, Unit.SECONDS, ("tier", "kind"), "phasewise does not run",
     "latency target: ttft (the user's time to first token), itl (a request's mean token gap)"),
    ("phasewise_slo_attainment_ratio", _G, Unit.RATIO, TIER, "phasewise does not run",
     "share of requests that should meet both targets"),
    ("phasewise_tick_duration_seconds", _H, Unit.SECONDS, ("tier", "part"), _LATER,
     "real time of a part of a tick: observe (all looks of it), plan, act (record and scale)"),
    ("phasewise_scrape_duration_seconds", _H, Unit.SECONDS, TIER, _LATER,
     "real time of one look at everything: discovery, scale targets and all pages"),
    ("phasewise_request_part_seconds", _H, Unit.SECONDS, ("part", "model", "pool"), _TRACED,
     "time that requests spent in a part of their life, from joined traces (`phasewise traces`): "
     "queue, prefill, kv_transfer, first_decode_step, decode; pool and model are empty where the "
     "engine does not say"),
    ("phasewise_last_tick_timestamp_seconds", _G, Unit.SECONDS, TIER, _LATER,
     "time of the last tick, by the clock that the loop follows"),
    ("phasewise_build_info", _G, Unit.INFO, ("version",), "phasewise does not run",
     "the version that runs, in its label"),
)
# fmt: on

OWN: tuple[MetricSpec, ...] = tuple(
    MetricSpec(
        name=name,
        type=kind,
        unit=unit,
        labels=labels,
        help=meaning,
        absence=absence,
        owner=Owner.PHASEWISE,
        field="",
    )
    for name, kind, unit, labels, absence, meaning in _ROWS
)
"""All of our own series, in the order of the page."""

OWN_BY_NAME: Mapping[str, MetricSpec] = {spec.name: spec for spec in OWN}
"""The same by name."""
