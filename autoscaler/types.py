"""The values of a decision: demand, forecast, need, proposal, plan.

Pure: no clock, no network, no log. Everything is an immutable value, so that a tick can be written
down and replayed to the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from serving.types import Override, Phase, PoolId, Slo, StartKind, StartStage


class Bottleneck(StrEnum):
    """Which resource of a pool runs out first."""

    COMPUTE = "compute"
    KV_CACHE = "kv_cache"
    NETWORK = "network"
    QUEUE_BACKLOG = "queue_backlog"


class Reason(StrEnum):
    """Why a number is what it is; each step that changes or keeps a number gives one."""

    DEMAND_ROSE = "DemandRose"
    DEMAND_FELL = "DemandFell"
    WITHIN_NEED = "WithinNeed"
    DEMAND_UNKNOWN = "DemandUnknown"
    POOL_STATE_UNKNOWN = "PoolStateUnknown"
    COVERAGE_LOW = "CoverageLow"
    CAPACITY_NOT_LEARNED = "CapacityNotLearned"
    FORECAST_UNPROVEN = "ForecastUnproven"
    DEMAND_CENSORED = "DemandCensored"
    SCALE_DOWN_STABILIZED = "ScaleDownStabilized"
    LATENCY_ABOVE_SLO = "LatencyAboveSlo"
    AT_MINIMUM = "AtMinimum"
    AT_MAXIMUM = "AtMaximum"
    BUDGET_LIMITED = "BudgetLimited"
    SLO_INFEASIBLE = "SloInfeasible"
    FIXED_SIZE = "FixedSize"
    PAUSED = "Paused"
    PINNED = "Pinned"
    FLOORED = "Floored"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPrior:
    """What is believed of one replica before anything was measured; the fits start from it.

    `prefill_s_per_token` and `prefill_base_s` make a step of n prompt tokens last base + n * slope;
    a decode step lasts base + batch * per_sequence + KV tokens * per_kv_token. The prior's relative
    spread (0.5: a standard deviation of half the value) says how fast data overrule it.
    """

    prefill_base_s: float = 0.010
    prefill_s_per_token: float = 1.0e-4
    decode_base_s: float = 0.025
    decode_s_per_sequence: float = 1.0e-4
    decode_s_per_kv_token: float = 2.0e-7
    spread_ratio: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """What the plan may do with one pool, and what is believed of it at the start."""

    pool: PoolId
    min_replicas: int
    max_replicas: int
    accelerators_per_replica: int = 1
    max_batched_tokens: int = 8192
    max_sequences: int = 256
    start_s: float = 120.0
    prior: CapacityPrior = CapacityPrior()

    @property
    def phase(self) -> Phase:
        """The pool's phase."""
        return self.pool.phase


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """Everything that learning and planning need to know of a tier: a value, part of the ledger.

    Ratios are 0-1. `upper_ratio` is the quantile of demand that a pool is sized for;
    `prefill_utilisation_ratio` the busiest that a prefill pool may be planned to run;
    `itl_ratio` and `kv_used_ratio` the shares of the ITL target and of the KV cache that a decode
    replica may be planned to use. `down_margin_ratio` is how much more demand N-1 must carry
    before a replica is given back, and for how long: `down_window_s`, or the lead if longer.
    A pool whose last good sample is older than `fresh_s` is blind: it may grow, never shrink.
    `kv_bytes_per_s_per_replica` is what the network is declared to carry; `None`: nobody said.
    """

    name: str
    slo: Slo
    pools: tuple[PoolSettings, ...]
    tick_s: float = 15.0
    accelerator_budget: int | None = None
    upper_ratio: float = 0.9
    prefill_utilisation_ratio: float = 0.82
    itl_ratio: float = 0.97
    kv_used_ratio: float = 0.92
    down_margin_ratio: float = 0.05
    down_window_s: float = 60.0
    backlog_drain_s: float = 60.0
    fresh_s: float = 20.0
    level_window_s: float = 60.0
    kv_bytes_per_s_per_replica: float | None = None

    def pool(self, pool: PoolId) -> PoolSettings:
        """The settings of one pool; KeyError if the tier has no such pool."""
        for settings in self.pools:
            if settings.pool == pool:
                return settings
        raise KeyError(str(pool))


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Work offered to the tier, split by what does it; `None` where it is not known.

    `prefill_tokens_per_s` are uncached input tokens (prefill work), `output_tokens_per_s` decode
    work, `kv_bytes_per_s` network work. `censored` marks a lower bound: the pool was saturated, so
    the number may raise it and never lower it.
    """

    requests_per_s: float | None = None
    prefill_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    kv_bytes_per_s: float | None = None
    input_tokens_mean: float | None = None
    output_tokens_mean: float | None = None
    censored: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One rate at a lead: what is expected, and the upper quantile that a pool is sized for."""

    made_at_s: float
    lead_s: float
    level_per_s: float
    expected_per_s: float
    upper_per_s: float
    upper_ratio: float
    forecaster: str
    history_s: float
    errors_known: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Replicas of one pool for a demand: before rounding, after it, and what binds.

    `replicas` carries the demand within the SLO; `demand_per_s` over `replica_capacity_per_s`
    (both in tokens) is `replicas_exact`, before any tail or rounding. `work` says whose tokens:
    prefill's are input, decode's output; an aggregated pool's sum has both, old ledgers `None`.
    The network's need is in bytes, of no tokens, and sizes nothing (`sizes_pool`).
    """

    bottleneck: Bottleneck
    replicas_exact: float
    replicas: int
    demand_per_s: float
    replica_capacity_per_s: float
    feasible: bool = True
    words: str = ""
    work: Phase | None = None

    @property
    def sizes_pool(self) -> bool:
        """Whether more replicas are the answer: not where the network between pools binds."""
        return self.bottleneck is not Bottleneck.NETWORK


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rule's effect on the number of replicas."""

    name: str
    before_replicas: int
    after_replicas: int
    reason: Reason
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The number of replicas so far, and every step that led to it; `frozen` ends the steps."""

    replicas: int
    reason: Reason
    steps: tuple[Step, ...] = ()
    frozen: bool = False

    def moved(
        self, name: str, replicas: int, reason: Reason, words: str = "", *, frozen: bool = False
    ) -> Proposal:
        """The proposal after one more step; a step that changes nothing is still written down."""
        step = Step(
            name=name,
            before_replicas=self.replicas,
            after_replicas=replicas,
            reason=reason,
            words=words,
        )
        return replace(
            self, replicas=replicas, reason=reason, steps=(*self.steps, step), frozen=frozen
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """What a pool of another size would be like under the demand that it is sized for.

    `utilisation_ratio` is that demand over what so many replicas can carry at most: for prefill
    the share of time that they are busy, for decode the share of the batches that the ITL target
    and the KV cache allow; over 1 is too much. `step_s` is the mean gap between tokens to expect,
    `None` where the pool does not decode or no gap could carry the demand. `ttft_miss_ratio` is
    the share of requests whose prompt would be late, `None` where the pool does not prefill.
    `holds_slo` is what the models expect, not a measurement; `is_proven` says whether the capacity
    was learned and the forecast held against what came.
    """

    replicas: int
    words: str
    utilisation_ratio: float
    step_s: float | None
    ttft_miss_ratio: float | None
    holds_slo: bool
    is_proven: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class KindLead:
    """Starts of one kind (`None`: of unknown kind): how many are known, and how long they took.

    `p50_s` and `p95_s` are with the prior, as the plan counts; `stages_s` are medians of what was
    measured, and a stage that was never observed is not among them.
    """

    kind: StartKind | None
    starts: int
    p50_s: float
    p95_s: float
    stages_s: tuple[tuple[StartStage, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """How long a start takes, by kind; `counted` is the kind that the plan counts with."""

    counted: StartKind | None
    p50_s: float
    p95_s: float
    kinds: tuple[KindLead, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one pool should have, absolutely, and why; applying it twice is harmless.

    `replicas` is `None` when there is nothing to say about the size (the pool's own state is not
    known): whoever acts leaves it alone. `hold` is true when the pool keeps its size.
    `wanted_replicas` is what the need alone asks for; `kept_replicas` is what would be asked with
    the down margin on top, which is what scaling down must come under for a whole down window.
    `counterfactuals` are one replica less, this size and one more, smallest first; none where the
    demand is not known. `override` is the person's word in force. `lead` is there once a kind of
    start or a stage of one was seen. `problems` are what is wrong that no size of the pool mends.
    """

    pool: PoolId
    replicas: int | None
    hold: bool
    reason: Reason
    words: str
    needs: tuple[Need, ...] = ()
    forecast: Forecast | None = None
    steps: tuple[Step, ...] = ()
    wanted_replicas: int | None = None
    kept_replicas: int | None = None
    inputs_age_s: float | None = None
    coverage_ratio: float | None = None
    override: Override | None = None
    counterfactuals: tuple[Counterfactual, ...] = ()
    lead: Lead | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The decisions of one tick for all pools of a tier. `epoch` grows with every tick."""

    tier: str
    epoch: int
    at_s: float
    policy: str
    decisions: tuple[Decision, ...]
    demand: Demand = Demand()
    demand_ratio: float | None = None
    problems: tuple[str, ...] = ()
