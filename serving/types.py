"""The shared words with their units. Pure: no clock, no network, no log.

All times are Unix seconds (virtual ones in a simulation). A value that is not known is `None`,
never zero: whoever reads it must say what it does then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from serving.step_sums import StepReading


class Phase(StrEnum):
    """What a pool does. `BOTH` is an aggregated pool, sized by the sum of its two kinds of work."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"


class ReplicaState(StrEnum):
    """Where a replica is in its life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class StartStage(StrEnum):
    """The stages of a start, in order; a stage that cannot be observed is unknown, not zero."""

    NODE = "node"
    SCHEDULED = "scheduled"
    IMAGE = "image"
    PROCESS = "process"
    WEIGHTS = "weights"
    COMPILE = "compile"
    READY = "ready"


class StartKind(StrEnum):
    """Whether the weights come from their source (cold) or are already near the replica (warm)."""

    COLD = "cold"
    WARM = "warm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A start as its source measured it. `stages` are seconds; one not in it is unknown, not 0."""

    created_s: float
    kind: StartKind | None = None
    stages: tuple[tuple[StartStage, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolId:
    """Which pool: its tier, its own name, its phase and the variant that serves there."""

    tier: str
    name: str
    phase: Phase
    variant: str

    def __str__(self) -> str:
        return f"{self.tier}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """The latency targets. A request is good if it meets both; attainment is the share wanted.

    `ttft_s` is the user's time to first token; `itl_s` bounds the request's own mean gap
    between tokens.
    """

    ttft_s: float
    itl_s: float
    attainment_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramReading:
    """A cumulative Prometheus histogram as read from a page.

    `bounds` are the finite `le` values in rising order, `cumulative` the counts at those bounds;
    `count` is the count at +Inf. Bounds are read, never assumed: engines let users change them.
    """

    bounds: tuple[float, ...]
    cumulative: tuple[float, ...]
    sum: float
    count: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReading:
    """What one engine page said at one instant, in our words; counters run since process start.

    Times are seconds, token fields tokens. `None`: the page does not carry the series.
    `prompt_tokens` is the logical prompt length; only `computed_prompt_tokens` is prefill work.
    `tpot` is each ended request's own mean gap between tokens: 0 for a request of one token, so for
    all on a prefill replica, and for one that failed before its first.
    """

    replica: str
    at_s: float
    process_start_time_s: float | None = None
    process_cpu_s: float | None = None
    running_requests: float | None = None
    waiting_requests: float | None = None
    deferred_requests: float | None = None
    kv_used_ratio: float | None = None
    kv_capacity_tokens: float | None = None
    prompt_tokens: float | None = None
    computed_prompt_tokens: float | None = None
    cached_prompt_tokens: float | None = None
    transferred_prompt_tokens: float | None = None
    output_tokens: float | None = None
    finished_requests: float | None = None
    failed_requests: float | None = None
    preemptions: float | None = None
    step_tokens: HistogramReading | None = None
    ttft: HistogramReading | None = None
    itl: HistogramReading | None = None
    tpot: HistogramReading | None = None
    queue_time: HistogramReading | None = None
    prefill_time: HistogramReading | None = None
    decode_time: HistogramReading | None = None
    request_prompt_tokens: HistogramReading | None = None
    request_output_tokens: HistogramReading | None = None
    kv_transfer_time: HistogramReading | None = None
    kv_transfer_bytes: HistogramReading | None = None
    kv_transfer_failures: float | None = None
    kv_expired_requests: float | None = None
    steps: StepReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterReading:
    """What the front end's page said at one instant: the user's own clock.

    A vllm-router page carries only `requests` (and what is in flight); an endpoint picker's page
    carries all. `requests` counts arrivals, the histograms count what has been observed so far:
    `ttft` at the first token, the others at the end of a request.
    """

    at_s: float
    source: str
    requests: float | None = None
    failed_requests: float | None = None
    running_requests: float | None = None
    input_tokens: HistogramReading | None = None
    cached_tokens: HistogramReading | None = None
    output_tokens: HistogramReading | None = None
    ttft: HistogramReading | None = None
    itl: HistogramReading | None = None
    tpot: HistogramReading | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number of a pool's window, how old it is, and the share of replicas behind it (0-1).

    `value` is `None` when it is not known; `age_s` then says for how long, if that is known.
    """

    value: float | None = None
    age_s: float | None = None
    coverage_ratio: float = 0.0


UNKNOWN = Measurement()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSample:
    """One window of one pool, derived from the readings at its two ends.

    Rates are sums over the pool, per second. Means are weighted by what they count: a mean ITL is
    the sum of gaps over their number. Gauges are sums over the replicas unless they say `hottest`.
    Where some replicas did not report, sums are scaled up to the expected number of replicas and
    `coverage_ratio` says how much was really seen; under the coverage floor the value is `None`.
    `problems` says in words what was wrong with which replica, `counted` how many requests, gaps
    or transfers are behind each mean, by field name, so that means can be joined over windows.
    `tpot_within_slo_ratio`: of the requests that ended well on decode, those whose own mean gap was
    within the SLO; only where the SLO is a bucket bound of the engines' histogram.
    `steps` is what the window added to the step exporter's sums, over the replicas that have it.
    """

    pool: PoolId
    window_start_s: float
    window_s: float
    replicas_expected: int
    replicas_reporting: int
    problems: tuple[str, ...] = ()
    finished_requests_per_s: Measurement = UNKNOWN
    failed_requests_per_s: Measurement = UNKNOWN
    prompt_tokens_per_s: Measurement = UNKNOWN
    computed_prompt_tokens_per_s: Measurement = UNKNOWN
    cached_prompt_tokens_per_s: Measurement = UNKNOWN
    transferred_prompt_tokens_per_s: Measurement = UNKNOWN
    output_tokens_per_s: Measurement = UNKNOWN
    steps_per_s: Measurement = UNKNOWN
    step_tokens_per_s: Measurement = UNKNOWN
    preemptions_per_s: Measurement = UNKNOWN
    running_requests: Measurement = UNKNOWN
    hottest_running_requests: Measurement = UNKNOWN
    waiting_requests: Measurement = UNKNOWN
    deferred_requests: Measurement = UNKNOWN
    kv_used_tokens: Measurement = UNKNOWN
    kv_capacity_tokens: Measurement = UNKNOWN
    hottest_kv_used_ratio: Measurement = UNKNOWN
    ttft_mean_s: Measurement = UNKNOWN
    itl_mean_s: Measurement = UNKNOWN
    queue_time_mean_s: Measurement = UNKNOWN
    prefill_time_mean_s: Measurement = UNKNOWN
    request_prompt_tokens_mean: Measurement = UNKNOWN
    request_output_tokens_mean: Measurement = UNKNOWN
    kv_transfer_bytes_per_s: Measurement = UNKNOWN
    kv_transfer_time_mean_s: Measurement = UNKNOWN
    kv_transfer_failures_per_s: Measurement = UNKNOWN
    kv_expired_requests_per_s: Measurement = UNKNOWN
    tpot_within_slo_ratio: Measurement = UNKNOWN
    counted: tuple[tuple[str, float], ...] = ()
    steps: StepReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSample:
    """One window of the front end, by the user's clock. Rates per second, means per request.

    `counted` says how many are behind each mean and share, by field name. Where the SLO is no
    bucket bound, `between` holds the share's name, the least and the most that it can be.
    """

    source: str
    window_start_s: float
    window_s: float
    problems: tuple[str, ...] = ()
    requests_per_s: Measurement = UNKNOWN
    failed_requests_per_s: Measurement = UNKNOWN
    running_requests: Measurement = UNKNOWN
    input_tokens_mean: Measurement = UNKNOWN
    cached_tokens_mean: Measurement = UNKNOWN
    output_tokens_mean: Measurement = UNKNOWN
    finished_requests_per_s: Measurement = UNKNOWN
    ttft_mean_s: Measurement = UNKNOWN
    ttft_within_slo_ratio: Measurement = UNKNOWN
    tpot_mean_s: Measurement = UNKNOWN
    tpot_within_slo_ratio: Measurement = UNKNOWN
    counted: tuple[tuple[str, float], ...] = ()
    between: tuple[tuple[str, float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """How many replicas a pool has, by state. From the scale target and discovery, never inferred.

    `starting_since_s` holds, for each starting replica, when it was asked for (oldest first), so
    that a plan knows when it will be ready. `None` counts: the source was not available.
    `starting_kinds` says for each of them how it starts, and is empty where no source says;
    `starts` are the newest ones that ended, as their source measured them; `next_start` is how the
    next one will be, where the source knows.
    """

    pool: PoolId
    observed_at_s: float
    desired_replicas: int | None
    ready_replicas: int | None
    starting_replicas: int | None
    draining_replicas: int | None
    starting_since_s: tuple[float, ...] = ()
    accelerators_per_replica: int = 1
    starting_kinds: tuple[StartKind | None, ...] = ()
    starts: tuple[Start, ...] = ()
    next_start: StartKind | None = None


class OverrideKind(StrEnum):
    """What a person asked of a pool: leave it, give it a size, or keep at least a size."""

    PAUSE = "pause"
    PIN = "pin"
    FLOOR = "floor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A person's word on one pool, which ends by itself.

    `replicas` is `None` for a pause. From `until_s` on (that instant too) it says nothing more.
    `pool` is the pool's name within its tier, `by` whoever asked.
    """

    kind: OverrideKind
    pool: str
    replicas: int | None = None
    until_s: float
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that was seen in one scrape interval: the only input of learning and planning.

    What people asked for (`overrides`, at most one for each pool) is seen like everything else, so
    that it is recorded and replayed.
    """

    at_s: float
    samples: tuple[PhaseSample, ...] = ()
    router: RouterSample | None = None
    pools: tuple[PoolState, ...] = ()
    problems: tuple[str, ...] = field(default=())
    overrides: tuple[Override, ...] = ()
