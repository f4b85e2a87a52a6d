"""How much traffic a comparison plays, and what it needs on average. Pure: no clock, no network.

The peers are given each replica's capacity, and every policy starts at the trace's mean need; both
come from the profile that the simulator plays, by the sizing formulas. Our own policy is given
neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoscaler.capacity import DecodeModel, PrefillModel, new_decode_model, new_prefill_model
from autoscaler.needs import NeedInput, decode_compute, decode_kv_cache, prefill_compute
from autoscaler.policies import Capacity
from autoscaler.types import CapacityPrior, Demand, Need, PoolSettings, TierSettings
from phasewise.tier_setup import simulation_plan, tier_settings
from serving.errors import Misconfigured
from serving.schema.tier import Tier
from serving.simulation.plan import PoolPlan
from serving.simulation.traffic import Request
from serving.types import Phase

MEAN_NEED_REPLICAS = 8.0
SPREAD_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceMeans:
    """A trace in a few numbers: rates per second, lengths in tokens, its span in seconds."""

    requests: int
    span_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    input_tokens_mean: float
    input_tokens_square_mean: float
    output_tokens_mean: float


def trace_means(requests: Sequence[Request]) -> TraceMeans:
    """The means of a trace; at least two requests at different times are needed."""
    if len(requests) < 2 or requests[-1].arrival_s <= requests[0].arrival_s:
        raise Misconfigured(
            "the trace is too short to compare anything on",
            where="trace",
            found=f"{len(requests)} requests",
            expected="at least two, at different times",
        )
    count = len(requests)
    span_s = requests[-1].arrival_s - requests[0].arrival_s
    inputs = sum(r.input_tokens for r in requests)
    outputs = sum(r.output_tokens for r in requests)
    return TraceMeans(
        requests=count,
        span_s=span_s,
        input_tokens_per_s=inputs / span_s,
        output_tokens_per_s=outputs / span_s,
        input_tokens_mean=inputs / count,
        input_tokens_square_mean=sum(r.input_tokens**2 for r in requests) / count,
        output_tokens_mean=outputs / count,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanNeed:
    """What the mean of a trace needs: replicas before rounding, and one replica's capacity."""

    capacity: Capacity
    prefill_replicas: float
    decode_replicas: float

    def initial(self, tier: Tier) -> dict[str, int]:
        """Sizes at the start, by pool: the mean need rounded up, within the pool's limits.

        An aggregated pool takes both kinds of work.
        """
        sizes: dict[str, int] = {}
        for pool in tier.spec.pools:
            need = {
                Phase.PREFILL: self.prefill_replicas,
                Phase.DECODE: self.decode_replicas,
                Phase.BOTH: self.prefill_replicas + self.decode_replicas,
            }[pool.phase]
            sizes[pool.name] = min(pool.replicas.max, max(pool.replicas.min, math.ceil(need)))
        return sizes


def _models(plan: PoolPlan, means: TraceMeans) -> tuple[PrefillModel, DecodeModel]:
    profile = plan.profile
    quadratic = profile.prefill_s_per_token_squared * (
        means.input_tokens_square_mean / means.input_tokens_mean
    )
    prefill = replace(
        new_prefill_model(CapacityPrior()),
        base_s=profile.prefill_base_s,
        s_per_token=profile.prefill_s_per_token + quadratic,
    )
    decode = replace(
        new_decode_model(CapacityPrior()),
        base_s=profile.decode_base_s,
        s_per_sequence=profile.decode_s_per_sequence,
        s_per_kv_token=profile.decode_s_per_kv_token,
        context_tokens_mean=means.input_tokens_mean + means.output_tokens_mean / 2.0,
        kv_capacity_tokens=float(plan.kv_blocks * plan.block_size_tokens),
    )
    return prefill, decode


def _question(
    settings: TierSettings, pool: PoolSettings, plan: PoolPlan, means: TraceMeans
) -> NeedInput:
    prefill, decode = _models(plan, means)
    return NeedInput(
        tier=settings,
        pool=pool,
        demand=Demand(
            input_tokens_mean=means.input_tokens_mean, output_tokens_mean=means.output_tokens_mean
        ),
        prefill_tokens_per_s=means.input_tokens_per_s,
        output_tokens_per_s=means.output_tokens_per_s,
        prefill=prefill,
        decode=decode,
        waiting_prefill_requests=None,
        serving_replicas=0,
        lead_s=0.0,
    )


def _scarcest(needs: Sequence[Need | None]) -> Need:
    return max((n for n in needs if n is not None), key=lambda n: n.replicas_exact)


def _mean_lengths(means: TraceMeans) -> str:
    return (
        f"prompts of {means.input_tokens_mean:,.0f} and answers of "
        f"{means.output_tokens_mean:,.0f} tokens in the mean"
    )


def _check_requests_fit(tier: Tier, means: TraceMeans) -> None:
    """A replica refuses what is longer than its model length, so such a trace plays nothing."""
    length = means.input_tokens_mean + means.output_tokens_mean
    for pool in tier.spec.pools:
        variant = tier.variant_of(pool)
        longest = variant.engine.max_model_len_tokens
        if length > longest:
            raise Misconfigured(
                "the trace's requests are longer than the engine takes",
                where=f"tier {tier.name}, variant {variant.name}, engine.maxModelLenTokens",
                found=f"{longest:,}, and {_mean_lengths(means)}",
                expected=f"at least {length:,.0f}, or a trace of shorter requests",
            )


def mean_need(tier: Tier, means: TraceMeans) -> MeanNeed:
    """The mean need of a trace on a tier, from its profiles and the sizing formulas."""
    settings = tier_settings(tier)
    plans = simulation_plan(tier).pools
    _check_requests_fit(tier, means)
    prefill: Need | None = None
    decode: Need | None = None
    for pool, plan in zip(settings.pools, plans, strict=True):
        seen = _question(settings, pool, plan, means)
        if pool.phase is not Phase.DECODE and prefill is None:
            prefill = prefill_compute(seen)
        if pool.phase is not Phase.PREFILL and decode is None:
            decode = _scarcest((decode_compute(seen), decode_kv_cache(seen)))
    if prefill is None or decode is None or not (prefill.feasible and decode.feasible):
        raise Misconfigured(
            "this tier cannot meet its targets on this trace at any size",
            where=f"tier {tier.name}, spec.slo",
            found=f"ttftSeconds {tier.slo.ttft_s:g}, itlSeconds {tier.slo.itl_s:g}, "
            f"{_mean_lengths(means)}",
            expected="targets that one replica can meet when it is not busy",
        )
    return MeanNeed(
        capacity=Capacity(
            prefill_tokens_per_s=prefill.replica_capacity_per_s,
            decode_tokens_per_s=decode.replica_capacity_per_s,
        ),
        prefill_replicas=prefill.replicas_exact,
        decode_replicas=decode.replicas_exact,
    )


def scaled(means: TraceMeans, volume: float) -> TraceMeans:
    """The means of the same trace with its traffic multiplied."""
    return replace(
        means,
        requests=round(means.requests * volume),
        input_tokens_per_s=means.input_tokens_per_s * volume,
        output_tokens_per_s=means.output_tokens_per_s * volume,
    )


def automatic_volume(tier: Tier, means: TraceMeans) -> int:
    """The whole multiple of the traffic whose mean need is about eight replicas of each pool.

    Below about three replicas rounding hides every difference between policies.
    """
    once = mean_need(tier, means)
    return max(1, round(2.0 * MEAN_NEED_REPLICAS / (once.prefill_replicas + once.decode_replicas)))
