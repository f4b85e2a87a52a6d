"""The rules between a need and a decision, in order. Pure: no clock, no network, no log.

Each step takes the proposal so far and returns the next; what it changed and why stays written on
it. To add a rule: one function here, one line in `STEPS`, one `Reason`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.state import PoolLearned
from autoscaler.types import Forecast, Need, PoolSettings, Proposal, Reason, TierSettings
from serving.types import Override, OverrideKind, Phase, PoolState

_QUEUE_SHARE_OF_TTFT = 0.5
_KV_FULL_RATIO = 0.97
_ERRORS_BEFORE_DOWN = 12  # a minute of scrapes whose forecasts have come due


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInput:
    """What the steps see of one pool. `kept_replicas` is the need with the down margin on top."""

    tier: TierSettings
    settings: PoolSettings
    learned: PoolLearned
    state: PoolState
    need: Need | None
    kept_replicas: int | None
    forecast: Forecast | None
    censored: bool
    now_s: float
    override: Override | None = None

    @property
    def present_replicas(self) -> int:
        """What the pool is asked to have now."""
        return self.state.desired_replicas or 0


StepRule = Callable[[Proposal, StepInput], Proposal]


def follow_need(proposal: Proposal, seen: StepInput) -> Proposal:
    """Go to what the need asks for; without a need, stay."""
    if seen.need is None:
        blind_s = _blind_s(seen)
        words = "no demand known yet" if blind_s is None else f"nothing known for {blind_s:.0f} s"
        return proposal.moved("follow_need", proposal.replicas, Reason.DEMAND_UNKNOWN, words)
    if not seen.need.feasible:
        return proposal.moved(
            "follow_need",
            proposal.replicas,
            Reason.SLO_INFEASIBLE,
            f"no number of replicas meets the target: {seen.need.words}",
        )
    wanted = seen.need.replicas
    if wanted == proposal.replicas:
        reason = Reason.WITHIN_NEED
    else:
        reason = Reason.DEMAND_ROSE if wanted > proposal.replicas else Reason.DEMAND_FELL
    return proposal.moved("follow_need", wanted, reason, seen.need.words)


def _blind_s(seen: StepInput) -> float | None:
    known = seen.learned.last_known_s
    return None if known is None else seen.now_s - known


def is_proven(forecast: Forecast | None) -> bool:
    """Whether a forecast was held against what came often enough to shrink by it."""
    return forecast is not None and forecast.errors_known >= _ERRORS_BEFORE_DOWN


def never_down_blind(proposal: Proposal, seen: StepInput) -> Proposal:
    """A pool that is not seen well enough, or not known well enough, does not shrink."""
    present = seen.present_replicas
    if proposal.replicas >= present:
        return proposal
    blind_s = _blind_s(seen)
    if blind_s is None or blind_s > seen.tier.fresh_s:
        sample = seen.learned.sample
        problems = "; ".join(sample.problems[:3]) if sample is not None else "no sample"
        since = "never seen" if blind_s is None else f"not seen for {blind_s:.0f} s"
        return proposal.moved(
            "never_down_blind", present, Reason.COVERAGE_LOW, f"{since}: {problems}"
        )
    if seen.state.ready_replicas is None:
        return proposal.moved("never_down_blind", present, Reason.POOL_STATE_UNKNOWN)
    learned = (
        seen.learned.decode.is_learned
        if seen.settings.phase is Phase.DECODE
        else seen.learned.prefill.is_learned
    )
    if seen.settings.phase is Phase.BOTH:
        learned = learned and seen.learned.decode.is_learned
    if not learned:
        return proposal.moved(
            "never_down_blind",
            present,
            Reason.CAPACITY_NOT_LEARNED,
            "too few windows of work seen to know what one replica carries",
        )
    if not is_proven(seen.forecast):
        known = 0 if seen.forecast is None else seen.forecast.errors_known
        return proposal.moved(
            "never_down_blind",
            present,
            Reason.FORECAST_UNPROVEN,
            f"the forecast was held against what came {known} times, {_ERRORS_BEFORE_DOWN} needed",
        )
    if seen.censored:
        return proposal.moved(
            "never_down_blind",
            present,
            Reason.DEMAND_CENSORED,
            "requests wait, so what was served is only a lower bound of the demand",
        )
    return proposal


def down_window_s(seen: StepInput) -> float:
    """How long less must have been enough: the stated window, or a start-up time if longer."""
    return max(seen.tier.down_window_s, seen.learned.lead.p95_s)


def slow_down(proposal: Proposal, seen: StepInput) -> Proposal:
    """Shrink only to what would have been enough, with a margin, for a whole down window.

    The window is at least a start-up time: what is given back takes that long to come again. A
    gap in the memory (a blind spell, a restart) is not evidence, so the window starts anew.
    """
    present = seen.present_replicas
    if proposal.replicas >= present:
        return proposal
    window_s = down_window_s(seen)
    wants = [w for w in seen.learned.wants if w.at_s > seen.now_s - window_s - 1e-6]
    expected = math.floor(window_s / seen.tier.tick_s)
    kept = proposal.replicas if seen.kept_replicas is None else seen.kept_replicas
    if len(wants) < expected:
        return proposal.moved(
            "slow_down",
            present,
            Reason.SCALE_DOWN_STABILIZED,
            f"less is enough in {len(wants)} of the {expected} ticks that it takes",
        )
    enough = max([kept, proposal.replicas, *(w.replicas for w in wants)])
    if enough >= present:
        return proposal.moved(
            "slow_down",
            present,
            Reason.SCALE_DOWN_STABILIZED,
            f"{present} was needed within the last {window_s:.0f} s, counting a margin of "
            f"{seen.tier.down_margin_ratio:.0%}",
        )
    if enough > proposal.replicas:
        return proposal.moved(
            "slow_down",
            enough,
            Reason.DEMAND_FELL,
            f"{enough} was needed within the last {window_s:.0f} s",
        )
    return proposal


def reactive_guard(proposal: Proposal, seen: StepInput) -> Proposal:
    """A forecast is a guess: latency over the target now raises the pool now.

    Only when no help is on its way already, and by one replica at a time or by the excess.
    """
    ready, starting = seen.state.ready_replicas, seen.state.starting_replicas
    sample = seen.learned.sample
    if sample is None or ready is None or starting is None or starting > 0:
        return proposal
    if seen.need is not None and not seen.need.feasible:
        return proposal  # more replicas would not help, and it has been said
    least, words = 0, ""
    queue_s, gap_s = sample.queue_time_mean_s.value, sample.itl_mean_s.value
    if seen.settings.phase is not Phase.DECODE and queue_s is not None:
        limit_s = _QUEUE_SHARE_OF_TTFT * seen.tier.slo.ttft_s
        if queue_s > limit_s:
            least, words = ready + 1, f"prompts wait {queue_s:.2f} s, over {limit_s:.2f} s"
    if seen.settings.phase is not Phase.PREFILL:
        if gap_s is not None and gap_s > seen.tier.slo.itl_s:
            least = max(least, math.ceil(ready * gap_s / seen.tier.slo.itl_s))
            words = f"gap between tokens {gap_s * 1000:.0f} ms, over the target"
        hottest = sample.hottest_kv_used_ratio.value
        if hottest is not None and hottest > _KV_FULL_RATIO:
            least, words = max(least, ready + 1), f"KV cache {hottest:.0%} full on one replica"
    if least <= proposal.replicas:
        return proposal
    return proposal.moved("reactive_guard", least, Reason.LATENCY_ABOVE_SLO, words)


def keep_limits(proposal: Proposal, seen: StepInput) -> Proposal:
    """The user's minimum and maximum hold, whatever is known."""
    low, high = seen.settings.min_replicas, seen.settings.max_replicas
    if proposal.replicas < low:
        words = f"{proposal.replicas} wanted, the pool's minimum is {low}"
        return proposal.moved("keep_limits", low, Reason.AT_MINIMUM, words)
    if proposal.replicas > high:
        words = f"{proposal.replicas} wanted, the pool's maximum is {high}"
        return proposal.moved("keep_limits", high, Reason.AT_MAXIMUM, words)
    return proposal


_REASONS = {
    OverrideKind.PAUSE: Reason.PAUSED,
    OverrideKind.PIN: Reason.PINNED,
    OverrideKind.FLOOR: Reason.FLOORED,
}


def obey_person(proposal: Proposal, seen: StepInput) -> Proposal:
    """A person's word comes last, within the limits: a pin may lower even a pool that is not seen.

    A pause leaves the pool as it is, even outside its limits. A floor that is met says nothing.
    """
    asked = seen.override
    if asked is None:
        return proposal
    if asked.kind is OverrideKind.PAUSE or asked.replicas is None:
        replicas, words = seen.present_replicas, f"paused by {asked.by}"
    else:
        low, high = seen.settings.min_replicas, seen.settings.max_replicas
        replicas = min(max(asked.replicas, low), high)
        told = {OverrideKind.PIN: "pinned to", OverrideKind.FLOOR: "at least"}[asked.kind]
        words = f"{told} {asked.replicas} by {asked.by}"
        if replicas != asked.replicas:
            words += f", kept within {low} to {high}"
        if asked.kind is OverrideKind.FLOOR and replicas <= proposal.replicas:
            return proposal
    left_s = asked.until_s - seen.now_s
    return proposal.moved(
        "obey_person", replicas, _REASONS[asked.kind], f"{words} for another {left_s:.0f} s"
    )


STEPS: tuple[StepRule, ...] = (
    follow_need,
    never_down_blind,
    slow_down,
    reactive_guard,
    keep_limits,
    obey_person,
)
