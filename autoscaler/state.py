"""What has been learned of a tier: one value, grown by `learn`, read by `plan`. Pure.

It holds plain numbers only, so that it can be written to the ledger, hashed and read back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autoscaler.capacity import DecodeModel, PrefillModel, new_decode_model, new_prefill_model
from autoscaler.demand import Bin
from autoscaler.forecast import RateHistory
from autoscaler.lead import LeadModel
from autoscaler.link import LinkModel
from autoscaler.types import Demand, PoolSettings, TierSettings
from serving.types import PhaseSample, PoolState, RouterSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What one tick would have given a pool, before it was held: the memory of scaling down."""

    at_s: float
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLearned:
    """What is known of one pool: its capacity models, lead, link, last sample, and recent wants."""

    prefill: PrefillModel
    decode: DecodeModel
    lead: LeadModel
    link: LinkModel = field(default_factory=LinkModel)
    state: PoolState | None = None
    sample: PhaseSample | None = None
    wants: tuple[Want, ...] = ()
    last_known_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedState:
    """What is known of a tier. Pools are in the order of the settings."""

    pools: tuple[PoolLearned, ...]
    bins: tuple[Bin, ...] = ()
    prefill_rate: RateHistory = field(default_factory=RateHistory)
    output_rate: RateHistory = field(default_factory=RateHistory)
    demand: Demand = field(default_factory=Demand)
    router: RouterSample | None = None
    now_s: float | None = None
    epoch: int = 0


def new_pool(settings: PoolSettings) -> PoolLearned:
    """A pool of which nothing is known but its priors."""
    return PoolLearned(
        prefill=new_prefill_model(settings.prior),
        decode=new_decode_model(settings.prior),
        lead=LeadModel(prior_s=settings.start_s),
    )


def new_state(tier: TierSettings) -> LearnedState:
    """A tier of which nothing is known but its priors."""
    return LearnedState(pools=tuple(new_pool(p) for p in tier.pools))
