"""How long a new replica takes to serve, learned from the starts seen. Pure: no clock, no network.

A start is seen when a replica that was starting is starting no longer while more are ready; it is
exact to one scrape interval. Quantiles come from the last starts, with the stated time as prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from serving.types import PoolState

_KEPT_STARTS = 32
_PRIOR_STARTS = 3
_LONGEST_START_S = 86400.0  # longer: whoever said when it began keeps another clock


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadModel:
    """The starts of one pool: durations in seconds, newest last, and what is starting now."""

    prior_s: float
    durations_s: tuple[float, ...] = ()
    starting_since_s: tuple[float, ...] = ()
    ready_replicas: int | None = None

    def quantile_s(self, ratio: float) -> float:
        """A quantile of the start-up time; the prior counts as three starts."""
        known = sorted((*self.durations_s, *([self.prior_s] * _PRIOR_STARTS)))
        index = min(len(known) - 1, max(0, math.ceil(ratio * len(known)) - 1))
        return known[index]

    @property
    def p50_s(self) -> float:
        """The median start-up time."""
        return self.quantile_s(0.5)

    @property
    def p95_s(self) -> float:
        """The start-up time that 95 % of starts stay within."""
        return self.quantile_s(0.95)


def learn_lead(model: LeadModel, state: PoolState) -> LeadModel:
    """The model after one more look at the pool: starts that ended since the last look are added.

    A start that was cancelled (no more replicas are ready than before) teaches nothing, and one
    that ended while the pool was not seen neither: when it ended is not known.
    """
    if state.ready_replicas is None or state.starting_replicas is None:
        return not_seen(model)
    gone = [since for since in model.starting_since_s if since not in state.starting_since_s]
    arrived = (
        0 if model.ready_replicas is None else max(0, state.ready_replicas - model.ready_replicas)
    )
    ended = [state.observed_at_s - since for since in sorted(gone)[:arrived]]
    ended = [lasted_s for lasted_s in ended if 0.0 <= lasted_s <= _LONGEST_START_S]
    return LeadModel(
        prior_s=model.prior_s,
        durations_s=(*model.durations_s, *ended)[-_KEPT_STARTS:],
        starting_since_s=state.starting_since_s,
        ready_replicas=state.ready_replicas,
    )


def not_seen(model: LeadModel) -> LeadModel:
    """The model after a look that told nothing: what was starting before it is forgotten."""
    return replace(model, starting_since_s=(), ready_replicas=None)
