"""From a tier document to what each room needs: settings for the autoscaler, a plan to simulate.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Mapping

from autoscaler.types import CapacityPrior, PoolSettings, TierSettings
from serving.errors import Misconfigured
from serving.schema.tier import Pool, Tier, Variant
from serving.simulation.plan import PoolPlan, TierPlan
from serving.simulation.profile import load_profile

_DEFAULT_START_S = 120.0


def capacity_prior(variant: Variant) -> CapacityPrior:
    """What the document knows of a replica; the general prior where it says nothing."""
    known, general = variant.capacity, CapacityPrior()
    if known is None:
        return general
    rate = known.prefill_tokens_per_second
    return CapacityPrior(
        prefill_base_s=general.prefill_base_s,
        prefill_s_per_token=general.prefill_s_per_token if rate is None else 1.0 / rate,
        decode_base_s=_or(known.decode_base_seconds, general.decode_base_s),
        decode_s_per_sequence=_or(known.decode_seconds_per_sequence, general.decode_s_per_sequence),
        decode_s_per_kv_token=_or(known.decode_seconds_per_kv_token, general.decode_s_per_kv_token),
        spread_ratio=general.spread_ratio,
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def tier_settings(tier: Tier, *, tick_s: float = 15.0) -> TierSettings:
    """What learning and planning need to know of a tier."""
    pools = tuple(
        PoolSettings(
            pool=pool_id,
            min_replicas=pool.replicas.min,
            max_replicas=pool.replicas.max,
            accelerators_per_replica=tier.variant_of(pool).accelerators_per_replica,
            max_batched_tokens=tier.variant_of(pool).engine.max_num_batched_tokens,
            max_sequences=tier.variant_of(pool).engine.max_num_seqs,
            start_s=_or(pool.startup.seconds, _DEFAULT_START_S),
            prior=capacity_prior(tier.variant_of(pool)),
        )
        for pool, pool_id in zip(tier.spec.pools, tier.pool_ids, strict=True)
    )
    budget = tier.spec.budget
    return TierSettings(
        name=tier.name,
        slo=tier.slo,
        pools=pools,
        tick_s=tick_s,
        accelerator_budget=None if budget is None else budget.accelerators,
        kv_bytes_per_s_per_replica=tier.spec.kv_transfer.bytes_per_second_per_replica,
    )


def _pool_plan(tier: Tier, pool: Pool, initial: int | None) -> PoolPlan:
    variant = tier.variant_of(pool)
    if variant.engine_profile is None:
        raise Misconfigured(
            "this variant cannot be simulated",
            where=f"tier {tier.name}, variant {variant.name}, engineProfile",
            found="nothing",
            expected="the name of a packaged engine profile",
        )
    engine = variant.engine
    return PoolPlan(
        name=pool.name,
        phase=pool.phase,
        variant=variant.name,
        profile=load_profile(variant.engine_profile),
        initial_replicas=initial
        if initial is not None
        else (pool.replicas.min if pool.replicas.initial is None else pool.replicas.initial),
        min_replicas=pool.replicas.min,
        max_replicas=pool.replicas.max,
        accelerators_per_replica=variant.accelerators_per_replica,
        start_s=pool.startup.seconds,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        block_size_tokens=engine.block_size_tokens,
        max_model_len=engine.max_model_len_tokens,
        kv_lease_s=engine.kv_lease_seconds,
        kv_capacity_tokens=engine.kv_capacity_tokens,
    )


def simulation_plan(tier: Tier, initial: Mapping[str, int] | None = None) -> TierPlan:
    """What the simulator plays; `initial` overrides the sizes at the start, by pool name."""
    sizes = initial or {}
    return TierPlan(
        name=tier.name,
        model=tier.spec.model,
        pools=tuple(_pool_plan(tier, pool, sizes.get(pool.name)) for pool in tier.spec.pools),
        router_policy=tier.spec.router.policy,
    )
