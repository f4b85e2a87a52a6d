"""What a pool would be like with another number of replicas. Pure: no clock, no network, no log.

The same models, formulas and demand as the need, asked the other way round: not how many replicas
a demand takes, but what so many replicas would do with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.needs import (
    LENGTH_CV2,
    TTFT_KEPT_FOR_PREFILL_RATIO,
    NeedInput,
    context_tokens,
    miss_ratio,
    room_for_spread,
)
from autoscaler.types import Bottleneck, Counterfactual, Need
from serving.types import Phase

_DEVIATIONS = 2.0  # of a batch that a hot replica may be above the mean before its KV cache is full


@dataclass(frozen=True, slots=True)
class _Part:
    """One kind of work at one size; `fault` says in words why the SLO would not hold."""

    utilisation_ratio: float
    words: str
    fault: str = ""
    step_s: float | None = None
    ttft_miss_ratio: float | None = None


def _prefill_part(seen: NeedInput, replicas: int, others_ratio: float) -> _Part | None:
    """Prompts on so many replicas, `others_ratio` of which is busy with something else."""
    demand = seen.prefill_tokens_per_s
    if seen.pool.phase is Phase.DECODE or demand is None:
        return None
    prompt = seen.demand.input_tokens_mean or 1.0
    own_ratio = demand / (seen.prefill.tokens_per_s(prompt) * replicas)
    missed = miss_ratio(
        replicas=replicas,
        utilisation=own_ratio + others_ratio,
        service_s=seen.prefill.service_s(prompt),
        budget_s=TTFT_KEPT_FOR_PREFILL_RATIO * seen.tier.slo.ttft_s,
        length_cv2=LENGTH_CV2,
    )
    allowed = 1.0 - seen.tier.slo.attainment_ratio
    words = (
        f"{own_ratio:.1%} busy with prompts (planned for at most "
        f"{seen.tier.prefill_utilisation_ratio:.0%}), {missed:.2%} of prompts late"
    )
    fault = f"more than {allowed:.2%} of prompts would be late" if missed > allowed else ""
    return _Part(own_ratio, words, fault, ttft_miss_ratio=missed)


def _decode_part(seen: NeedInput, needs: Sequence[Need], replicas: int) -> _Part | None:
    """Answers on so many replicas; the hot replica is what must hold, the mean what is expected."""
    demand = seen.output_tokens_per_s
    own = [n for n in needs if n.work is Phase.DECODE]
    if seen.pool.phase is Phase.PREFILL or demand is None or not own:
        return None
    rate = demand / replicas
    context = max(1.0, context_tokens(seen))
    step_s = seen.decode.step_s(rate, context)
    utilisation = rate / min(n.replica_capacity_per_s for n in own)
    if not math.isfinite(step_s):
        return _Part(utilisation, "no gap between tokens carries it", "decode cannot keep up")
    batch = rate * step_s
    hot_s = step_s + seen.decode.s_per_request(context) * math.sqrt(batch)
    limit_s = seen.tier.slo.itl_s
    words = (
        f"{utilisation:.1%} of what decode carries, mean gap between tokens {step_s * 1000:.1f} ms"
    )
    fault = ""
    if hot_s > limit_s:
        fault = f"on a hot replica the gap would be {hot_s * 1000:.1f} ms of {limit_s * 1000:g} ms"
    elif (held := _held_requests(seen, context)) < batch:
        fault = f"{batch:.0f} requests a replica would not fit: there is room for {held:.0f}"
    return _Part(utilisation, words, fault, step_s=step_s)


def _held_requests(seen: NeedInput, context: float) -> float:
    """The mean batch whose hot replica still fits its KV cache and its sequence limit."""
    most = float(seen.pool.max_sequences)
    if seen.decode.kv_capacity_tokens is not None:
        most = min(most, seen.decode.kv_capacity_tokens / context)
    return room_for_spread(most, _DEVIATIONS)


def _doubt(seen: NeedInput, forecast_proven: bool) -> str:
    """What an expectation rests on while it is not to be trusted; empty once it is."""
    prefill = seen.pool.phase is Phase.DECODE or seen.prefill.is_learned
    decode = seen.pool.phase is Phase.PREFILL or seen.decode.is_learned
    if not (prefill and decode):
        return "by the prior, as what a replica carries is not learned yet,"
    return "" if forecast_proven else "by a forecast that is not proven yet"


def at_size(
    seen: NeedInput, needs: Sequence[Need], replicas: int, *, forecast_proven: bool = True
) -> Counterfactual | None:
    """The pool with so many replicas; `None` where the demand or what carries it is not known."""
    if replicas < 1 or not all(n.feasible for n in needs):
        return None
    decode = _decode_part(seen, needs, replicas)
    prefill = _prefill_part(seen, replicas, 0.0 if decode is None else decode.utilisation_ratio)
    parts = [part for part in (prefill, decode) if part is not None]
    utilisation = sum(part.utilisation_ratio for part in parts)
    if len(parts) < (2 if seen.pool.phase is Phase.BOTH else 1) or not math.isfinite(utilisation):
        return None
    faults = [part.fault for part in parts if part.fault]
    queue = next((n for n in needs if n.bottleneck is Bottleneck.QUEUE_BACKLOG), None)
    if queue is not None and replicas < queue.replicas:
        faults.append(
            f"the queue would not drain within {seen.tier.backlog_drain_s:.0f} s of the lead"
        )
    if utilisation > 1.0 and not faults:
        faults.append("more work than the replicas carry")
    words = "; ".join(part.words for part in parts)
    if queue is not None:
        words += " (once the queue is gone)"
    doubt = _doubt(seen, forecast_proven)
    if doubt:
        verdict = f"{doubt} the SLO {'would not' if faults else 'would'} be kept"
    else:
        verdict = f"the SLO {'does not hold' if faults else 'holds'}"
    if faults:
        verdict += f" ({', '.join(faults)})"
    return Counterfactual(
        replicas=replicas,
        words=f"{words}; {verdict}",
        utilisation_ratio=utilisation,
        step_s=None if decode is None else decode.step_s,
        # while requests queue, how many are late is the queue's to say, and not this formula's
        ttft_miss_ratio=None if prefill is None or queue is not None else prefill.ttft_miss_ratio,
        holds_slo=not faults,
        is_proven=not doubt,
    )


def counterfactuals(
    seen: NeedInput, needs: Sequence[Need], replicas: int, *, forecast_proven: bool = True
) -> tuple[Counterfactual, ...]:
    """One replica less, this size, one more; sizes under one and unknown ones are left out.

    While what a replica carries is not learned or the forecast not proven, the words say so.
    """
    found = (
        at_size(seen, needs, size, forecast_proven=forecast_proven)
        for size in (replicas - 1, replicas, replicas + 1)
    )
    return tuple(each for each in found if each is not None)
