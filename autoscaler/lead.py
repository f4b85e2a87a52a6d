"""How long a new replica takes to serve, learned from the starts seen. Pure: no clock, no network.

A start is seen when a replica that was starting is starting no longer while more are ready; it is
exact to one scrape interval. Quantiles come from the last starts, with the stated time as prior:
of one kind (cold or warm) where it is known which kind the next start will be, else of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from autoscaler.types import KindLead, Lead
from serving.types import PoolState, Start, StartKind, StartStage

_KEPT_STARTS = 32
_PRIOR_STARTS = 3
_LONGEST_START_S = 86400.0  # longer: whoever said when it began keeps another clock


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedStart:
    """A start that ended, of which more is known than how long it took in all."""

    seconds: float
    kind: StartKind | None = None
    stages: tuple[tuple[StartStage, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadModel:
    """The starts of one pool: durations in seconds, newest last, and what is starting now.

    `durations_s` are of all starts; `told` are those of which a kind or stages are known, the last
    of each kind. `newest_kind` is the kind of the newest start, begun or ended, `next_kind` what
    the source says of the next one.
    """

    prior_s: float
    durations_s: tuple[float, ...] = ()
    starting_since_s: tuple[float, ...] = ()
    ready_replicas: int | None = None
    starting_kinds: tuple[StartKind | None, ...] = ()
    told: tuple[LearnedStart, ...] = ()
    newest_kind: StartKind | None = None
    next_kind: StartKind | None = None

    @property
    def kind(self) -> StartKind | None:
        """The kind that the plan counts with; `None`: all starts alike."""
        return self.next_kind or self.newest_kind

    def quantile_s(self, ratio: float) -> float:
        """A quantile of the start-up time that the plan counts with."""
        if self.kind is None:
            return self._with_prior(self.durations_s, ratio)
        return self.quantile_of_s(self.kind, ratio)

    def quantile_of_s(self, kind: StartKind | None, ratio: float) -> float:
        """A quantile of one kind's start-up time; `None` are the starts of unknown kind."""
        return self._with_prior([start.seconds for start in self.of_kind(kind)], ratio)

    def _with_prior(self, seen: Iterable[float], ratio: float) -> float:
        """The prior counts as three starts."""
        known = sorted((*seen, *([self.prior_s] * _PRIOR_STARTS)))
        index = min(len(known) - 1, max(0, math.ceil(ratio * len(known)) - 1))
        return known[index]

    def of_kind(self, kind: StartKind | None) -> tuple[LearnedStart, ...]:
        """The starts of a kind; with `None` those whose kind was not known."""
        return tuple(start for start in self.told if start.kind is kind)

    def stages_s(self, kind: StartKind | None) -> tuple[tuple[StartStage, float], ...]:
        """The median of each stage over a kind's starts; a stage never observed is left out."""
        seen: dict[StartStage, list[float]] = {}
        for start in self.of_kind(kind):
            for stage, seconds in start.stages:
                seen.setdefault(stage, []).append(seconds)
        return tuple((stage, median(seen[stage])) for stage in StartStage if stage in seen)

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
    arrived = (
        0 if model.ready_replicas is None else max(0, state.ready_replicas - model.ready_replicas)
    )
    still = set(_starting(state.starting_since_s, state.starting_kinds))
    before = _starting(model.starting_since_s, model.starting_kinds)
    gone = sorted((each for each in before if each not in still), key=lambda each: each[0])
    ended = [
        _learned(since_s, kind, state)
        for since_s, kind in gone[:arrived]
        if 0.0 <= state.observed_at_s - since_s <= _LONGEST_START_S
    ]
    return LeadModel(
        prior_s=model.prior_s,
        durations_s=(*model.durations_s, *(start.seconds for start in ended))[-_KEPT_STARTS:],
        starting_since_s=state.starting_since_s,
        ready_replicas=state.ready_replicas,
        starting_kinds=state.starting_kinds,
        told=_kept((*model.told, *(s for s in ended if s.kind is not None or s.stages))),
        newest_kind=_newest_kind(model, state, ended),
        next_kind=state.next_start,
    )


def lead_told(model: LeadModel) -> Lead | None:
    """What to say of a pool's starts; `None` while neither a kind nor a stage was seen."""
    if model.kind is None and not model.told:
        return None
    kinds: tuple[StartKind | None, ...] = (*StartKind, None)
    return Lead(
        counted=model.kind,
        p50_s=model.p50_s,
        p95_s=model.p95_s,
        kinds=tuple(
            KindLead(
                kind=kind,
                starts=len(seen),
                p50_s=model.quantile_of_s(kind, 0.5),
                p95_s=model.quantile_of_s(kind, 0.95),
                stages_s=model.stages_s(kind),
            )
            for kind in kinds
            if (seen := model.of_kind(kind))
        ),
    )


def not_seen(model: LeadModel) -> LeadModel:
    """The model after a look that told nothing: what was starting before it is forgotten."""
    return replace(model, starting_since_s=(), starting_kinds=(), ready_replicas=None)


def _starting(
    since_s: Sequence[float], kinds: Sequence[StartKind | None]
) -> list[tuple[float, StartKind | None]]:
    """When each start began, and its kind; starts of one moment may be of two kinds."""
    if len(kinds) != len(since_s):
        return [(each, None) for each in since_s]
    return list(zip(since_s, kinds, strict=True))


def _learned(since_s: float, kind: StartKind | None, state: PoolState) -> LearnedStart:
    """A start that just ended; what its source measured of it is taken, if it says so by now."""
    told: Iterable[Start] = (s for s in state.starts if s.created_s == since_s)
    mine = next((s for s in told if kind is None or s.kind in (None, kind)), None)
    return LearnedStart(
        seconds=state.observed_at_s - since_s,
        kind=kind if kind is not None or mine is None else mine.kind,
        stages=() if mine is None else mine.stages,
    )


def _kept(told: Sequence[LearnedStart]) -> tuple[LearnedStart, ...]:
    """The last of each kind, in the order in which they came."""
    kept: list[LearnedStart] = []
    for start in reversed(told):
        if sum(1 for each in kept if each.kind is start.kind) < _KEPT_STARTS:
            kept.append(start)
    return tuple(reversed(kept))


def _newest_kind(
    model: LeadModel, state: PoolState, ended: Sequence[LearnedStart]
) -> StartKind | None:
    """Of what is starting the youngest, else of what ended last, else as before."""
    starting = _starting(state.starting_since_s, state.starting_kinds)
    if starting:
        return starting[-1][1]
    return ended[-1].kind if ended else model.newest_kind
