"""The observer: from the pages of one scrape, and what it remembers, to an `Observation`.

One pure step for every way that readings come in (HTTP pages, a simulator read directly). It
decides which replicas should have reported, and for how long what is missing has been missing.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from collector import derive_router
from collector.derive import MEASUREMENTS, Census, ReplicaWindow, derive_phase_sample
from collector.derive_router import derive_router_sample, off_bound
from collector.look import look_at_replica, look_at_router
from collector.state import ObserverState as ObserverState
from collector.timeline import Patience, Track, Window
from serving.types import (
    Measurement,
    Observation,
    PhaseSample,
    PoolState,
    ReplicaReading,
    ReplicaState,
    RouterReading,
    RouterSample,
    Slo,
    StartKind,
    StartStage,
)

ROUTER = "router"
"""The router's key in `problems`."""
_ROUTER_MEMORY = "/router"  # no pool has a slash in its name


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One replica that discovery names: its pool (by name), its state, when it was asked for.

    `start_kind` and `start_stages` are how it starts or started and how long each stage took,
    `next_start` how the next replica of its pool will; `None` and empty are unknown.
    """

    pool: str
    state: ReplicaState
    created_s: float | None = None
    start_kind: StartKind | None = None
    start_stages: tuple[tuple[StartStage, float], ...] = ()
    next_start: StartKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverSettings:
    """When a number counts as known.

    `max_age_s`: a page that is older or more late is not used. `coverage_floor_ratio`: under this
    share of ready replicas a pool's number is not known. `history_s`: how far back a late page is
    looked for, and the longest gap that a rate may span. `frozen_windows`: windows without a sign
    of life that make a busy replica's page frozen.
    """

    max_age_s: float = 15.0
    coverage_floor_ratio: float = 0.6
    history_s: float = 120.0
    frozen_windows: int = 2

    @property
    def patience(self) -> Patience:
        """The part of it that judges one source's pages."""
        return Patience(
            max_age_s=self.max_age_s,
            history_s=self.history_s,
            frozen_windows=self.frozen_windows,
        )


DEFAULT = ObserverSettings()


def step(
    state: ObserverState,
    *,
    now_s: float,
    readings: Mapping[str, ReplicaReading],
    router: RouterReading | None,
    pools: Sequence[PoolState],
    members: Mapping[str, Member] | None,
    slo: Slo | None,
    settings: ObserverSettings = DEFAULT,
    problems: Mapping[str, str] | None = None,
) -> tuple[ObserverState, Observation]:
    """The next state and what was seen: one sample for each pool, and the router's.

    `problems` says by replica name (or `ROUTER`) why there is no reading; `members` is `None` when
    there is no list at all. A step that does not move the clock on sees no window: its rates are
    unknown; one that moves it back begins anew, since no window spans such a step.
    """
    why = problems or {}
    listed = {} if members is None else members
    if state.at_s is not None and now_s < state.at_s:
        state = ObserverState(states=state.states, said=state.said)
    patience = settings.patience
    start_s = state.at_s if state.at_s is not None else now_s
    tracks: dict[str, Track[ReplicaReading]] = {}
    windows: dict[str, list[ReplicaWindow]] = {pool.pool.name: [] for pool in pools}
    said: dict[str, list[str]] = {pool.pool.name: [] for pool in pools}
    for name in sorted(listed):
        member = listed[name]
        reading, track = readings.get(name), state.replicas.get(name)
        if reading is None:
            if track is not None:
                tracks[name] = track
            if member.state is not ReplicaState.STARTING and member.pool in said:
                said[member.pool].append(f"{name}: no page: {why.get(name, 'nothing was read')}")
            continue
        was = state.states.get(name)
        tracks[name], window, from_zero = look_at_replica(
            track, reading, was=was, start_s=start_s, now_s=now_s, patience=patience
        )
        if member.state is ReplicaState.STARTING or member.pool not in windows:
            continue
        ready = member.state is ReplicaState.READY
        windows[member.pool].append(
            ReplicaWindow(replica=name, ready=ready, window=window, from_zero=from_zero)
        )
        if window.problem is not None:
            said[member.pool].append(f"{name}: {window.problem}")
    known = dict(state.known_at_s)
    samples: list[PhaseSample] = []
    for pool in pools:
        key = pool.pool.name
        own = [member.state for member in listed.values() if member.pool == key]
        expected = max(own.count(ReplicaState.READY), pool.ready_replicas or 0)
        census = Census(
            expected=expected,
            empty=expected == 0 and pool.ready_replicas == 0 and pool.desired_replicas == 0,
            floor_ratio=settings.coverage_floor_ratio,
            now_s=now_s,
        )
        sample = derive_phase_sample(
            pool.pool,
            windows[key],
            census=census,
            window_start_s=start_s,
            itl_slo_s=slo.itl_s if slo is not None else None,
            problems=(*_unlisted(pool, own, no_list=members is None), *said[key]),
        )
        changed, known[key] = _aged(sample, MEASUREMENTS, known.get(key, {}), now_s)
        samples.append(replace(sample, **changed) if changed else sample)
    track_router, router_sample, once = _router(
        state, router, slo=slo, now_s=now_s, settings=settings, why=why.get(ROUTER)
    )
    if router_sample is not None:
        changed, known[_ROUTER_MEMORY] = _aged(
            router_sample, derive_router.MEASUREMENTS, known.get(_ROUTER_MEMORY, {}), now_s
        )
        router_sample = replace(router_sample, **changed)
    following = ObserverState(
        at_s=now_s,
        replicas=tracks,
        states={name: member.state for name, member in listed.items()},
        router=track_router,
        known_at_s=known,
        said=once,
    )
    strays = sorted(readings.keys() - listed.keys())
    return following, Observation(
        at_s=now_s,
        samples=tuple(samples),
        router=router_sample,
        pools=tuple(pools),
        problems=tuple(f"{name}: a page of no known replica" for name in strays),
    )


def _unlisted(pool: PoolState, own: Sequence[ReplicaState], *, no_list: bool) -> list[str]:
    """Why nothing is known of a pool that is asked to have replicas of which none is listed."""
    if own or pool.desired_replicas == 0:
        return []
    if no_list:
        return ["the list of replicas did not come"]
    asked = pool.desired_replicas
    have = "nobody says how many" if asked is None else f"{asked}"
    return [f"the list names no replica of a pool that is asked to have {have}"]


def _router(
    state: ObserverState,
    reading: RouterReading | None,
    *,
    slo: Slo | None,
    now_s: float,
    settings: ObserverSettings,
    why: str | None,
) -> tuple[Track[RouterReading] | None, RouterSample | None, tuple[str, ...]]:
    """The router's track, its sample, and all that has been said once."""
    start_s = state.at_s if state.at_s is not None else now_s
    track = state.router
    if reading is None:
        if track is None and why is None:
            return None, None, state.said
        source = track.base.source if track is not None else "unknown"
        problem = (f"{ROUTER}: no page: {why or 'nothing was read'}",)
        sample = derive_router_sample(
            source, Window(), slo=slo, now_s=now_s, window_start_s=start_s, problems=problem
        )
        return track, sample, state.said
    following, window = look_at_router(track, reading, now_s=now_s, patience=settings.patience)
    fresh = [] if slo is None else [s for s in off_bound(reading, slo) if s not in state.said]
    problems = [*fresh, *([f"{ROUTER}: {window.problem}"] if window.problem else [])]
    sample = derive_router_sample(
        reading.source, window, slo=slo, now_s=now_s, window_start_s=start_s, problems=problems
    )
    return following, sample, (*state.said, *fresh)


def _aged(
    sample: PhaseSample | RouterSample,
    names: Iterable[str],
    known_at_s: Mapping[str, float],
    now_s: float,
) -> tuple[dict[str, Any], dict[str, float]]:
    """The unknown measurements with how long they have been so, and when each was last known."""
    changed: dict[str, Any] = {}
    latest = dict(known_at_s)
    for name in names:
        one: Measurement = getattr(sample, name)
        if one.value is not None:
            latest[name] = now_s - (one.age_s or 0.0)
        elif name in latest:
            changed[name] = Measurement(None, now_s - latest[name], one.coverage_ratio)
    return changed, latest
