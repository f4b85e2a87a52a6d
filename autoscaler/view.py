"""One picture of a tier for a page or a terminal, from its last recorded ticks and nothing else.

Pure: no clock, no network, no log. What was not known is `None`, never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from autoscaler.explain import binding_need
from autoscaler.recorded import RecordedTick
from autoscaler.sources import sources_of
from autoscaler.types import Decision, Forecast, Reason, TierSettings
from autoscaler.view_model import (
    AskedFor,
    Bounds,
    Counts,
    History,
    PoolHistory,
    PoolNow,
    Rates,
    Said,
    View,
)
from serving.recorded_within import joined
from serving.types import Override, Phase, PoolState, RouterSample

MOST_DECISIONS = 50
_PREFILL_WORK = (Phase.PREFILL, Phase.BOTH)
_DECODE_WORK = (Phase.DECODE, Phase.BOTH)


def view(
    ticks: Sequence[RecordedTick],
    settings: TierSettings,
    *,
    mode: str,
    overrides: Sequence[Override] | None = None,
) -> View:
    """The picture of the last ticks, oldest first; there must be one.

    `overrides` are those in force now, where they may be newer than the last tick's.
    """
    newest = ticks[-1]
    asked = newest.newest.overrides if overrides is None else overrides
    return View(
        tier=newest.plan.tier,
        mode=mode,
        at_s=newest.at_s,
        epoch=newest.epoch,
        tick_s=settings.tick_s,
        slo=settings.slo,
        history=_history(ticks, settings),
        fan={
            "prefill": _forecast(newest, Phase.PREFILL),
            "output": _forecast(newest, Phase.DECODE),
        },
        pools=tuple(_pool(newest, d, settings, asked) for d in newest.plan.decisions),
        decisions=decisions(ticks),
        sources=sources_of(ticks, settings),
        problems=_problems(newest),
    )


def _history(ticks: Sequence[RecordedTick], settings: TierSettings) -> History:
    pools = {p.pool.name: p.phase for p in settings.pools}
    within = [_within_slo(tick) for tick in ticks]
    return History(
        at_s=tuple(tick.at_s for tick in ticks),
        pools={name: _pool_history(ticks, name, phase) for name, phase in pools.items()},
        demand=Rates(
            prefill_tokens_per_s=tuple(t.plan.demand.prefill_tokens_per_s for t in ticks),
            output_tokens_per_s=tuple(t.plan.demand.output_tokens_per_s for t in ticks),
        ),
        provided=Rates(
            prefill_tokens_per_s=tuple(provided_per_s(t, Phase.PREFILL) for t in ticks),
            output_tokens_per_s=tuple(provided_per_s(t, Phase.DECODE) for t in ticks),
        ),
        forecast={
            "prefill": _bounds([_forecast(tick, Phase.PREFILL) for tick in ticks]),
            "output": _bounds([_forecast(tick, Phase.DECODE) for tick in ticks]),
        },
        demand_ratio=tuple(tick.plan.demand_ratio for tick in ticks),
        replica_ratio=tuple(replica_ratio(tick) for tick in ticks),
        ttft_within_slo_ratio=tuple(ttft for ttft, _ in within),
        tpot_within_slo_ratio=tuple(tpot for _, tpot in within),
    )


def _pool_history(ticks: Sequence[RecordedTick], name: str, phase: Phase) -> PoolHistory:
    states = [tick.state(name) for tick in ticks]
    made = [tick.decision(name) for tick in ticks]

    def counts(read: Callable[[PoolState], int | None]) -> Counts:
        return tuple(None if state is None else read(state) for state in states)

    return PoolHistory(
        phase=str(phase),
        desired=counts(lambda s: s.desired_replicas),
        decided=tuple(None if d is None else d.replicas for d in made),
        ready=counts(lambda s: s.ready_replicas),
        starting=counts(lambda s: s.starting_replicas),
        draining=counts(lambda s: s.draining_replicas),
        wanted=tuple(None if d is None else d.wanted_replicas for d in made),
    )


def _bounds(said: Sequence[Forecast | None]) -> Bounds:
    return Bounds(
        expected_per_s=tuple(None if f is None else f.expected_per_s for f in said),
        upper_per_s=tuple(None if f is None else f.upper_per_s for f in said),
    )


def _forecast(tick: RecordedTick, phase: Phase) -> Forecast | None:
    """The forecast that a phase's pool was sized by; an aggregated pool is sized by output."""
    phases = (Phase.PREFILL,) if phase is Phase.PREFILL else _DECODE_WORK
    found = (d.forecast for d in tick.plan.decisions if d.pool.phase in phases)
    return next((forecast for forecast in found if forecast is not None), None)


def capacity_per_s(decision: Decision, phase: Phase) -> float | None:
    """Tokens per second that one replica was planned to carry of a phase's work."""
    own = [
        need.replica_capacity_per_s
        for need in decision.needs
        if (need.work or decision.pool.phase) is phase and need.bottleneck != "queue_backlog"
    ]
    return min(own, default=None)


def provided_per_s(tick: RecordedTick, phase: Phase) -> float | None:
    """What the ready replicas of a phase carry; `None` if one pool's count or capacity is."""
    phases = _PREFILL_WORK if phase is Phase.PREFILL else _DECODE_WORK
    total = 0.0
    for decision in (d for d in tick.plan.decisions if d.pool.phase in phases):
        state, capacity = tick.state(decision.pool.name), capacity_per_s(decision, phase)
        if state is None or state.ready_replicas is None or capacity is None:
            return None
        total += state.ready_replicas * capacity
    return total


def replica_ratio(tick: RecordedTick) -> float | None:
    """Ready prefill replicas over ready decode replicas."""
    ready = {Phase.PREFILL: 0, Phase.DECODE: 0, Phase.BOTH: 0}
    for state in tick.newest.pools:
        if state.ready_replicas is None:
            return None
        ready[state.pool.phase] += state.ready_replicas
    return ready[Phase.PREFILL] / ready[Phase.DECODE] if ready[Phase.DECODE] else None


def _within_slo(tick: RecordedTick) -> tuple[float | None, float | None]:
    """Shares of requests within each target over the whole tick, weighted by finished requests.

    By the front end; a token gap that its buckets do not tell exactly is judged by decode's, if
    these do.
    """
    routers = [o.router for o in tick.observations if o.router is not None]
    exact, gap = _by_front_end("tpot_within_slo_ratio", routers)
    if not exact or gap is None:
        decoding = [sample for o in tick.observations for sample in o.samples]
        by_decode = _weighted(
            [sample.tpot_within_slo_ratio.value for sample in decoding],
            [sample.finished_requests_per_s.value for sample in decoding],
        )
        gap = gap if by_decode is None else by_decode
    return _by_front_end("ttft_within_slo_ratio", routers)[1], gap


def _by_front_end(name: str, routers: Sequence[RouterSample]) -> tuple[bool, float | None]:
    """Whether the front end's buckets tell a share exactly, and the share."""
    between_bounds, share = joined(name, routers)
    if between_bounds:
        return False, share
    values = [getattr(router, name).value for router in routers]
    return True, _weighted(values, [router.finished_requests_per_s.value for router in routers])


def _weighted(values: Sequence[float | None], weights: Sequence[float | None]) -> float | None:
    known = [(v, w or 0.0) for v, w in zip(values, weights, strict=True) if v is not None]
    if not known:
        return None
    total = sum(w for _, w in known)
    if total <= 0.0:
        return sum(v for v, _ in known) / len(known)
    return sum(v * w for v, w in known) / total


def _pool(
    tick: RecordedTick, decision: Decision, settings: TierSettings, asked: Iterable[Override]
) -> PoolNow:
    name = decision.pool.name
    state = tick.state(name)
    limits = settings.pool(decision.pool)
    binds = binding_need(decision.needs)
    return PoolNow(
        name=name,
        phase=str(decision.pool.phase),
        desired=None if state is None else state.desired_replicas,
        decided=decision.replicas,
        ready=None if state is None else state.ready_replicas,
        starting=None if state is None else state.starting_replicas,
        draining=None if state is None else state.draining_replicas,
        wanted=decision.wanted_replicas,
        min=limits.min_replicas,
        max=limits.max_replicas,
        reason=str(decision.reason),
        words=decision.words,
        binds=None if binds is None else str(binds.bottleneck),
        hold=decision.hold,
        coverage_ratio=decision.coverage_ratio,
        inputs_age_s=decision.inputs_age_s,
        problems=decision.problems,
        override=next(
            (
                AskedFor(
                    kind=str(each.kind), replicas=each.replicas, until_s=each.until_s, by=each.by
                )
                for each in asked
                if each.pool == name and tick.at_s < each.until_s
            ),
            None,
        ),
        lead=decision.lead,
    )


def decisions(ticks: Sequence[RecordedTick], *, most: int = MOST_DECISIONS) -> tuple[Said, ...]:
    """Every change and every hold that is not plainly enough, newest first, equal holds folded."""
    found: list[Said] = []
    last: dict[str, int] = {}  # where each pool's newest entry is, if its run may go on
    for tick in ticks:
        for decision in tick.plan.decisions:
            pool = decision.pool.name
            state = tick.state(pool)
            before = None if state is None else state.desired_replicas
            if decision.hold and decision.reason is Reason.WITHIN_NEED:
                last.pop(pool, None)
                continue
            run = found[last[pool]] if pool in last else None
            same = (
                run is not None
                and decision.hold
                and (run.reason, run.after) == (decision.reason, decision.replicas)
            )
            said = Said(
                at_s=tick.at_s,
                epoch=tick.epoch,
                pool=pool,
                before=before,
                after=decision.replicas,
                reason=str(decision.reason),
                words=decision.words,
                since_s=run.since_s if run is not None and same else tick.at_s,
                ticks=run.ticks + 1 if run is not None and same else 1,
            )
            if same:
                found[last[pool]] = said
            else:
                found.append(said)
                last.pop(pool, None)
                if decision.hold:
                    last[pool] = len(found) - 1
    newest_first = sorted(found, key=lambda said: (-said.at_s, said.pool))
    return tuple(newest_first[:most])


def _problems(tick: RecordedTick) -> tuple[str, ...]:
    samples = (problem for sample in tick.newest.samples for problem in sample.problems)
    router = () if tick.newest.router is None else tick.newest.router.problems
    return tuple(dict.fromkeys((*tick.newest.problems, *tick.plan.problems, *samples, *router)))
