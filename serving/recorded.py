"""The recorded series, `phase:*`: what dashboards and alerts read, beside our own `phasewise_*`.

Each has two suppliers that agree: a PromQL expression over the engines' and the endpoint picker's
native series (rendered as recording rules), and a measurement of the observer's samples. The
labels `tier`, `pool` and `phase` of native series come from the target. Rates are over one minute,
so a scrape interval of at most 30 s is assumed.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from serving.catalogue import CATALOGUE, Owner, Unit

WINDOW = "1m"
WINDOW_S = 60.0
POOL_LABELS = ("tier", "pool", "phase")
TIER_LABELS = ("tier",)


class Over(StrEnum):
    """How the observer's samples of one minute become one number."""

    NEWEST = "the newest sample"
    RATE = "mean over the window's time"
    MEAN = "mean over what was counted"


class WithinSlo(StrEnum):
    """Which threshold of the SLO a share is of: such an expression needs the tier's SLO."""

    TTFT = "ttft"
    TPOT = "tpot"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSpec:
    """One recorded series; always a gauge.

    `measurement` is the field of `PhaseSample`, or of `RouterSample` where the labels are the
    tier's alone. `expr` is the PromQL over native series; it is empty where `within` says that an
    SLO is needed: ask `recorded_within.expression`.
    """

    name: str
    unit: Unit
    labels: tuple[str, ...]
    help: str
    absence: str
    measurement: str
    over: Over
    expr: str
    within: WithinSlo | None = None

    @property
    def of_user(self) -> bool:
        """By the user's clock, from the front end: for the tier as a whole."""
        return self.labels == TIER_LABELS


def sum_by(vector: str, labels: Sequence[str] = POOL_LABELS) -> str:
    """The sum over everything but these labels."""
    return f"sum by ({', '.join(labels)}) ({vector})"


def rate_by(series: str, labels: Sequence[str] = POOL_LABELS) -> str:
    """The rate of a counter over the window, summed."""
    return sum_by(f"rate({series}[{WINDOW}])", labels)


def first_of(*expressions: str) -> str:
    """The first that has data: engines emit old and new names, of which only one may count."""
    return " or ".join(expressions)


def _mean(name: str, labels: Sequence[str] = POOL_LABELS, selector: str = "") -> str:
    """The growth of the sum over that of the count; absent while nothing was counted."""
    count = rate_by(f"{name}_count{selector}", labels)
    return f"{rate_by(f'{name}_sum{selector}', labels)} / ({count} > 0)"


_FAILED = 'vllm:request_success_total{finished_reason="error"}'


def _believable_mean(name: str) -> str:
    """Like `_mean`, without the replicas on which a request failed within the minute.

    A request that fails before it is scheduled moves these sums by the host's uptime (vLLM 0.32).
    """

    def part(suffix: str) -> str:
        odd = f"(increase({_FAILED}[{WINDOW}]) > 0)"
        grown = f"rate({name}_{suffix}[{WINDOW}])"
        return sum_by(f"{grown} unless ignoring (finished_reason) {odd}")

    return f"{part('sum')} / ({part('count')} > 0)"


def epp_names(field: str) -> tuple[str, ...]:
    """The names that generations of the endpoint picker gave one number, newest first."""
    return tuple(s.name for s in CATALOGUE if s.owner is Owner.EPP and s.field == field)


_STREAMED = '{streaming!="false"}'  # TTFT of a request that is not streamed is its whole duration


def _user_rate(field: str, suffix: str = "") -> str:
    return first_of(*(rate_by(f"{name}{suffix}", TIER_LABELS) for name in epp_names(field)))


def _user_mean(field: str) -> str:
    selector = _STREAMED if field == "ttft" else ""
    return first_of(*(_mean(name, TIER_LABELS, selector) for name in epp_names(field)))


_SOURCE = "vllm:prompt_tokens_by_source_total"
_COMPUTED = first_of(  # before vLLM 0.16 only the prefill side can be told, by difference
    rate_by(f'{_SOURCE}{{source="local_compute"}}'),
    rate_by('vllm:prompt_tokens_total{phase="prefill"}')
    + " - "
    + rate_by('vllm:prefix_cache_hits_total{phase="prefill"}'),
)
_KV_USED = "max by (tier, pool, phase) ({})"
_REPORTING = (
    "count by (tier, pool, phase) "
    "(count by (tier, pool, phase, instance) (vllm:num_requests_running))"
)

_SILENT = "no replica reports it, or too few do: not known"
_IDLE = "nothing was counted in the minute, or no replica reports it: not known"
_VERSION = "no replica reports it, its version or role lacks it: not known"
_FRONT = "the front end does not report it, or had no such event yet: not known"
_NONE_LATELY = "no such request in the minute, or the front end does not report it: not known"
_BETWEEN = (
    "no such request in the minute, the front end does not report it, or the shares at the bounds "
    "around the SLO are more than 0.02 apart: not known"
)
_BOUND = (
    "no such request in the minute, or neither the front end nor decode has the SLO as a bucket "
    "bound: not known"
)

_R, _N, _M = Over.RATE, Over.NEWEST, Over.MEAN
Row = tuple[str, Unit, str, Over, str, str, str]

# fmt: off
_POOL: tuple[Row, ...] = (
    # name, unit, measurement, how, absence, expression, meaning
    ("phase:prompt_tokens:rate1m", Unit.TOKENS_PER_S, "prompt_tokens_per_s", _R, _SILENT,
     rate_by("vllm:prompt_tokens_total"),
     "logical prompt tokens; never add prefill and decode, which count the same prompts"),
    ("phase:prompt_tokens_computed:rate1m", Unit.TOKENS_PER_S, "computed_prompt_tokens_per_s", _R,
     _VERSION, _COMPUTED, "prompt tokens computed here: the prefill work"),
    ("phase:prompt_tokens_cached:rate1m", Unit.TOKENS_PER_S, "cached_prompt_tokens_per_s", _R,
     _VERSION, first_of(rate_by(f'{_SOURCE}{{source="local_cache_hit"}}'),
                         rate_by("vllm:prefix_cache_hits_total")),
     "prompt tokens found in the local prefix cache"),
    ("phase:prompt_tokens_transferred:rate1m", Unit.TOKENS_PER_S,
     "transferred_prompt_tokens_per_s", _R, _VERSION,
     first_of(rate_by(f'{_SOURCE}{{source="external_kv_transfer"}}'),
               rate_by("vllm:external_prefix_cache_hits_total")),
     "prompt tokens whose KV came from another replica"),
    ("phase:output_tokens:rate1m", Unit.TOKENS_PER_S, "output_tokens_per_s", _R, _SILENT,
     rate_by("vllm:generation_tokens_total"),
     "tokens sampled; on prefill one for each request, which is thrown away"),
    ("phase:requests_finished:rate1m", Unit.REQUESTS_PER_S, "finished_requests_per_s", _R, _SILENT,
     rate_by('vllm:request_success_total{finished_reason!~"error|abort"}'),
     "requests that ended well in this phase; each is counted once in every phase"),
    ("phase:requests_failed:rate1m", Unit.REQUESTS_PER_S, "failed_requests_per_s", _R, _SILENT,
     rate_by(_FAILED), "requests that ended in an error in this phase, as a failed KV pull"),
    ("phase:requests_running:sum", Unit.REQUESTS, "running_requests", _N, _SILENT,
     sum_by("vllm:num_requests_running"), "requests in the running batches"),
    ("phase:requests_waiting:sum", Unit.REQUESTS, "waiting_requests", _N, _SILENT,
     sum_by("vllm:num_requests_waiting"),
     "requests that wait for capacity, or for their KV where phases are apart"),
    ("phase:requests_deferred:sum", Unit.REQUESTS, "deferred_requests", _N, _VERSION,
     sum_by('vllm:num_requests_waiting_by_reason{reason="deferred"}'),
     "the part of them that waits for remote KV, a LoRA slot or a grammar"),
    ("phase:kv_used:ratio_max", Unit.RATIO, "hottest_kv_used_ratio", _N, _SILENT,
     first_of(_KV_USED.format("vllm:kv_cache_usage_perc"),
               _KV_USED.format("vllm:gpu_cache_usage_perc")),
     "share of KV blocks in use on the fullest replica; pinned KV counts"),
    ("phase:preemptions:rate1m", Unit.EVENTS_PER_S, "preemptions_per_s", _R, _SILENT,
     rate_by("vllm:num_preemptions_total"), "requests put out of a batch for lack of KV blocks"),
    ("phase:ttft_seconds:mean1m", Unit.SECONDS, "ttft_mean_s", _M, _IDLE,
     _mean("vllm:time_to_first_token_seconds"),
     "arrival at a replica to its first token, by that replica's clock: not the user's TTFT"),
    ("phase:queue_time_seconds:mean1m", Unit.SECONDS, "queue_time_mean_s", _M, _IDLE,
     _believable_mean("vllm:request_queue_time_seconds"),
     "arrival at a replica to first scheduled; on decode it includes the KV transfer"),
    ("phase:prefill_time_seconds:mean1m", Unit.SECONDS, "prefill_time_mean_s", _M, _IDLE,
     _believable_mean("vllm:request_prefill_time_seconds"), "first scheduled to first token"),
    ("phase:itl_seconds:mean1m", Unit.SECONDS, "itl_mean_s", _M, _IDLE,
     first_of(_mean("vllm:inter_token_latency_seconds"),
               _mean("vllm:time_per_output_token_seconds")),
     "gap between output events; absent on prefill, which has none"),
    ("phase:kv_transfer_bytes:rate1m", Unit.BYTES_PER_S, "kv_transfer_bytes_per_s", _R, _VERSION,
     rate_by("vllm:nixl_bytes_transferred_sum"), "KV bytes moved, on the side that pulls"),
    ("phase:kv_transfer_seconds:mean1m", Unit.SECONDS, "kv_transfer_time_mean_s", _M, _IDLE,
     _mean("vllm:nixl_xfer_time_seconds"), "time of one KV transfer of one rank"),
    ("phase:kv_transfer_failures:rate1m", Unit.EVENTS_PER_S, "kv_transfer_failures_per_s", _R,
     _VERSION, rate_by("vllm:nixl_num_failed_transfers_total"), "failed KV transfers"),
    ("phase:kv_expired:rate1m", Unit.REQUESTS_PER_S, "kv_expired_requests_per_s", _R, _VERSION,
     rate_by("vllm:nixl_num_kv_expired_reqs_total"),
     "requests on prefill whose KV lease ran out unread: prefill work that was for nothing"),
    ("phase:replicas_reporting:count", Unit.REPLICAS, "replicas_reporting", _N, _SILENT,
     _REPORTING, "replicas whose page was read; draining ones too, where only rules supply it"),
)
_USER: tuple[Row, ...] = (
    ("phase:user_requests:rate1m", Unit.REQUESTS_PER_S, "requests_per_s", _R, _FRONT,
     _user_rate("requests"), "requests that arrived at the front end"),
    ("phase:user_requests_failed:rate1m", Unit.REQUESTS_PER_S, "failed_requests_per_s", _R, _FRONT,
     _user_rate("failed_requests"), "requests that the front end saw fail"),
    ("phase:user_requests_finished:rate1m", Unit.REQUESTS_PER_S, "finished_requests_per_s", _R,
     _FRONT, _user_rate("output_tokens", "_count"), "requests that ended at the front end"),
    ("phase:user_requests_running:sum", Unit.REQUESTS, "running_requests", _N, _FRONT,
     first_of(*(sum_by(name, TIER_LABELS) for name in epp_names("running_requests"))),
     "requests that have arrived and not ended"),
    ("phase:user_ttft_seconds:mean1m", Unit.SECONDS, "ttft_mean_s", _M, _NONE_LATELY,
     _user_mean("ttft"), "time to first token by the user's clock"),
    ("phase:user_tpot_seconds:mean1m", Unit.SECONDS, "tpot_mean_s", _M, _NONE_LATELY,
     _user_mean("tpot"), "mean gap between the tokens of a request, by the user's clock"),
    ("phase:user_ttft_within_slo:ratio1m", Unit.RATIO, "ttft_within_slo_ratio", _M, _BETWEEN,
     "", "share of requests whose TTFT was within the SLO; at least this many where the SLO is no"
     " bucket bound"),
    ("phase:user_tpot_within_slo:ratio1m", Unit.RATIO, "tpot_within_slo_ratio", _M, _BOUND,
     "", "share of requests whose mean token gap was within the SLO; by decode's clock where the"
     " front end has no bucket bound there"),
    ("phase:user_input_tokens:mean1m", Unit.TOKENS, "input_tokens_mean", _M, _NONE_LATELY,
     _user_mean("input_tokens"), "prompt length of the requests that ended"),
    ("phase:user_cached_tokens:mean1m", Unit.TOKENS, "cached_tokens_mean", _M, _NONE_LATELY,
     _user_mean("cached_tokens"), "prompt tokens that the engine reported as cached"),
    ("phase:user_output_tokens:mean1m", Unit.TOKENS, "output_tokens_mean", _M, _NONE_LATELY,
     _user_mean("output_tokens"), "output length of the requests that ended"),
)
# fmt: on
_WITHIN = {
    "ttft_within_slo_ratio": WithinSlo.TTFT,
    "tpot_within_slo_ratio": WithinSlo.TPOT,
}


def _spec(row: Row, labels: tuple[str, ...]) -> RecordedSpec:
    name, unit, measurement, over, absence, expr, meaning = row
    return RecordedSpec(
        name=name,
        unit=unit,
        labels=labels,
        help=meaning,
        absence=absence,
        measurement=measurement,
        over=over,
        expr=expr,
        within=_WITHIN.get(measurement),
    )


RECORDED: tuple[RecordedSpec, ...] = (
    *(_spec(row, POOL_LABELS) for row in _POOL),
    *(_spec(row, TIER_LABELS) for row in _USER),
)
"""All recorded series: those of a pool, then those of the user's clock."""

RECORDED_BY_NAME: Mapping[str, RecordedSpec] = {spec.name: spec for spec in RECORDED}
"""The same by name."""
