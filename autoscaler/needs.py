"""How many replicas a demand needs, resource by resource. Pure: no clock, no network, no log.

`NEEDS` is the tuple of rules; each looks at one resource of one pool and returns a `Need` or
`None` when it has nothing to say. The largest wins. Formulas name where they come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.capacity import DecodeModel, PrefillModel
from autoscaler.link import gigabytes
from autoscaler.types import Bottleneck, Demand, Need, PoolSettings, TierSettings
from serving.types import Phase

_SEARCH_LIMIT_REPLICAS = 100_000
LENGTH_CV2 = 1.0  # squared variation of prompt lengths where it is not known
TTFT_KEPT_FOR_PREFILL_RATIO = 0.8  # of the TTFT target; the rest is transfer and first decode step


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedInput:
    """What the rules see of one pool: rates are the upper ones at the pool's lead, per second."""

    tier: TierSettings
    pool: PoolSettings
    demand: Demand
    prefill_tokens_per_s: float | None
    output_tokens_per_s: float | None
    prefill: PrefillModel
    decode: DecodeModel
    waiting_prefill_requests: float | None
    serving_replicas: int | None
    lead_s: float


NeedRule = Callable[[NeedInput], Need | None]


def miss_ratio(
    *, replicas: int, utilisation: float, service_s: float, budget_s: float, length_cv2: float
) -> float:
    """Share of requests that would wait and be served longer than the budget.

    Mean wait behind a router that knows loads, as a G/G/k queue (Allen-Cunneen):
    W = rho / (1 - rho) * S * (1/k + cv2) / 2, with an exponential tail of weight rho.
    """
    if utilisation >= 1.0:
        return 1.0
    if utilisation <= 0.0:
        return 0.0
    spare_s = budget_s - 1.5 * service_s
    if spare_s <= 0.0:
        return 1.0
    wait_s = utilisation / (1.0 - utilisation) * service_s * (1.0 / replicas + length_cv2) / 2.0
    return utilisation * math.exp(-utilisation * spare_s / wait_s)


def prefill_compute(seen: NeedInput) -> Need | None:
    """The smallest pool of k servers that keeps the prompt queue inside the TTFT budget."""
    demand, prompt = seen.prefill_tokens_per_s, seen.demand.input_tokens_mean
    if seen.pool.phase is Phase.DECODE or demand is None:
        return None
    prompt = prompt or 1.0
    capacity = seen.prefill.tokens_per_s(prompt)
    service_s = seen.prefill.service_s(prompt)
    budget_s = TTFT_KEPT_FOR_PREFILL_RATIO * seen.tier.slo.ttft_s
    allowed = 1.0 - seen.tier.slo.attainment_ratio
    feasible = budget_s > 1.5 * service_s
    replicas = max(1, math.ceil(demand / (capacity * seen.tier.prefill_utilisation_ratio) - 1e-9))
    while feasible and replicas < _SEARCH_LIMIT_REPLICAS:
        missed = miss_ratio(
            replicas=replicas,
            utilisation=demand / (capacity * replicas),
            service_s=service_s,
            budget_s=budget_s,
            length_cv2=LENGTH_CV2,
        )
        if missed <= allowed:
            break
        replicas += 1
    return Need(
        bottleneck=Bottleneck.COMPUTE,
        replicas_exact=demand / (capacity * seen.tier.prefill_utilisation_ratio),
        replicas=replicas,
        demand_per_s=demand,
        replica_capacity_per_s=capacity * seen.tier.prefill_utilisation_ratio,
        feasible=feasible,
        words=f"{demand:,.0f} input tokens/s over {capacity:,.0f} a replica, "
        f"at most {seen.tier.prefill_utilisation_ratio:.0%} busy",
        work=Phase.PREFILL,
    )


def prefill_backlog(seen: NeedInput) -> Need | None:
    """Replicas that drain what would still queue when a new one could serve, in a stated time.

    Only the projected backlog counts: what the pool works off by itself before help arrives needs
    no help. After the prototype rule n >= (in + q'/T) / v.
    """
    waiting, demand = seen.waiting_prefill_requests, seen.prefill_tokens_per_s
    prompt = seen.demand.input_tokens_mean
    if seen.pool.phase is Phase.DECODE or waiting is None or demand is None or prompt is None:
        return None
    capacity = seen.prefill.tokens_per_s(prompt)
    serving = seen.serving_replicas
    if serving is None:
        return None  # as none would be served, and a whole pool ordered
    backlog_tokens = waiting * prompt + (demand - serving * capacity) * seen.lead_s
    if backlog_tokens <= 0.5 * seen.tier.slo.ttft_s * capacity * max(1, serving):
        return None
    if waiting * prompt <= 0.25 * seen.tier.slo.ttft_s * capacity * max(1, serving):
        return None  # nothing queues now: a shortage to come is the compute need's to say
    rate = demand + backlog_tokens / seen.tier.backlog_drain_s
    return Need(
        bottleneck=Bottleneck.QUEUE_BACKLOG,
        replicas_exact=rate / capacity,
        replicas=math.ceil(rate / capacity - 1e-9),
        demand_per_s=rate,
        replica_capacity_per_s=capacity,
        words=f"{waiting:,.0f} requests wait; {backlog_tokens:,.0f} tokens would be left at the "
        f"lead, to be drained in {seen.tier.backlog_drain_s:.0f} s",
        work=Phase.PREFILL,
    )


def _batch_within_itl(model: DecodeModel, context: float, *, target_s: float, cap: int) -> float:
    """The largest batch whose hot replica stays within the target.

    step + per_request * sqrt(batch) <= target: replicas differ by about the square root of their
    batch, and the hot one must hold too.
    """
    per_request = model.s_per_request(context)
    room_s = target_s - model.base_s
    if room_s <= 0.0:
        return 0.0
    if per_request <= 0.0:
        return float(cap)
    root = (-1.0 + math.sqrt(1.0 + 4.0 * room_s / per_request)) / 2.0
    return min(root * root, room_for_spread(float(cap), 2.0))


def room_for_spread(limit: float, deviations: float) -> float:
    """The largest mean whose square-root spread stays under a limit: b + z sqrt(b) <= limit."""
    if limit <= 0.0:
        return 0.0
    root = (-deviations + math.sqrt(deviations * deviations + 4.0 * limit)) / 2.0
    return root * root


def _decode_need(
    seen: NeedInput, *, batch: float, context: float, bottleneck: Bottleneck, words: str
) -> Need:
    demand = seen.output_tokens_per_s or 0.0
    step_s = seen.decode.base_s + seen.decode.s_per_request(context) * batch
    capacity = batch / step_s if batch > 0.0 else 0.0
    feasible = capacity > 0.0
    exact = demand / capacity if feasible else math.inf
    return Need(
        bottleneck=bottleneck,
        replicas_exact=exact if feasible else float(seen.pool.max_replicas),
        replicas=max(1, math.ceil(exact - 1e-9)) if feasible else seen.pool.max_replicas,
        demand_per_s=demand,
        replica_capacity_per_s=capacity,
        feasible=feasible,
        words=f"{demand:,.0f} output tokens/s over {capacity:,.0f} a replica ({words})",
        work=Phase.DECODE,
    )


def context_tokens(seen: NeedInput) -> float:
    """Tokens that a request of a decode replica holds on average: as learned, else from lengths."""
    known = seen.decode.context_tokens_mean
    if known is not None:
        return known
    return (seen.demand.input_tokens_mean or 0.0) + (seen.demand.output_tokens_mean or 0.0) / 2.0


def decode_compute(seen: NeedInput) -> Need | None:
    """Replicas whose step time, at the batch that the demand makes, meets the ITL target."""
    if seen.pool.phase is Phase.PREFILL or seen.output_tokens_per_s is None:
        return None
    context = context_tokens(seen)
    target_s = seen.tier.itl_ratio * seen.tier.slo.itl_s
    batch = _batch_within_itl(seen.decode, context, target_s=target_s, cap=seen.pool.max_sequences)
    return _decode_need(
        seen,
        batch=batch,
        context=context,
        bottleneck=Bottleneck.COMPUTE,
        words=f"batch {batch:.0f} within {target_s * 1000:.0f} ms",
    )


def decode_kv_cache(seen: NeedInput) -> Need | None:
    """Replicas whose KV cache holds the requests that the demand keeps resident."""
    capacity = seen.decode.kv_capacity_tokens
    if seen.pool.phase is Phase.PREFILL or seen.output_tokens_per_s is None or capacity is None:
        return None
    context = max(1.0, context_tokens(seen))
    batch = room_for_spread(seen.tier.kv_used_ratio * capacity / context, 2.0)
    return _decode_need(
        seen,
        batch=min(batch, float(seen.pool.max_sequences)),
        context=context,
        bottleneck=Bottleneck.KV_CACHE,
        words=f"{batch:.0f} contexts of {context:,.0f} tokens in {capacity:,.0f}",
    )


def decode_network(seen: NeedInput) -> Need | None:
    """Replicas whose declared links carry the KV that comes; said, but no pool is sized by it.

    KV in bytes per second grows with the forecast as output does. More replicas would be the wrong
    answer: a link that the pools share does not grow with them.
    """
    rate, kv = seen.tier.kv_bytes_per_s_per_replica, seen.demand.kv_bytes_per_s
    upper, level = seen.output_tokens_per_s, seen.demand.output_tokens_per_s
    if seen.pool.phase is not Phase.DECODE or not rate or kv is None or upper is None or not level:
        return None
    demand = kv * upper / level
    return Need(
        bottleneck=Bottleneck.NETWORK,
        replicas_exact=demand / rate,
        replicas=max(1, math.ceil(demand / rate - 1e-9)),
        demand_per_s=demand,
        replica_capacity_per_s=rate,
        words=f"{gigabytes(demand)} GB/s of KV over {gigabytes(rate)} GB/s a replica, as declared; "
        "no pool is sized by it",
    )


NEEDS: tuple[NeedRule, ...] = (
    prefill_compute,
    prefill_backlog,
    decode_compute,
    decode_kv_cache,
    decode_network,
)


def aggregated_need(needs: tuple[Need, ...]) -> Need | None:
    """One need for an aggregated pool: the sum of the shares that its two kinds of work take."""
    by_work = [n for n in needs if n.bottleneck is not Bottleneck.QUEUE_BACKLOG]
    if not by_work:
        return None
    exact = sum(n.replicas_exact for n in by_work if n.bottleneck is Bottleneck.COMPUTE)
    largest = max(by_work, key=lambda n: n.replicas_exact)
    exact = max(exact, largest.replicas_exact)
    return Need(
        bottleneck=largest.bottleneck,
        replicas_exact=exact,
        replicas=max(1, math.ceil(exact - 1e-9)),
        demand_per_s=largest.demand_per_s,
        replica_capacity_per_s=largest.replica_capacity_per_s,
        feasible=all(n.feasible for n in by_work),
        words="prefill and decode work added up: " + "; ".join(n.words for n in by_work),
        work=Phase.BOTH,
    )
