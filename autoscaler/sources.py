"""How fresh each source of a tier is: pools, front end, discovery, scale targets.

Pure: no clock, no network, no log. Told from recorded ticks, so "never" means never in those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from autoscaler.recorded import RecordedTick
from autoscaler.types import TierSettings
from serving.types import Observation


class Freshness(StrEnum):
    """Fresh: told within the limit. Stale: before it. Silent: tells nothing. Unknown: never did."""

    FRESH = "fresh"
    STALE = "stale"
    SILENT = "silent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One source: how fresh, how old its last word is, and more in words."""

    name: str
    state: Freshness
    age_s: float | None
    words: str


def sources_of(ticks: Sequence[RecordedTick], settings: TierSettings) -> tuple[Source, ...]:
    """Every source of a tier, as the newest of the ticks (oldest first) leaves it."""
    newest = ticks[-1]
    pools = [_pool(newest, p.pool.name, settings) for p in settings.pools]
    names = [p.pool.name for p in settings.pools]
    router = newest.newest.router
    return (
        *pools,
        _seen(
            ticks,
            settings,
            name="router",
            told=lambda o: o.router is not None and o.router.requests_per_s.value is not None,
            talks=router is not None and router.requests_per_s.value is not None,
            words="" if router is None else "; ".join((router.source, *router.problems)),
        ),
        _seen(
            ticks,
            settings,
            name="discovery",
            told=lambda o: _counted(o, names, "ready_replicas"),
            talks=_counted(newest.newest, names, "ready_replicas"),
            words="which replicas each pool has",
        ),
        _seen(
            ticks,
            settings,
            name="scale targets",
            told=lambda o: _counted(o, names, "desired_replicas"),
            talks=_counted(newest.newest, names, "desired_replicas"),
            words="how many replicas each pool is asked to have",
        ),
    )


def _counted(observation: Observation, pools: Sequence[str], field: str) -> bool:
    found = {s.pool.name: getattr(s, field) for s in observation.pools}
    return all(found.get(name) is not None for name in pools)


def _pool(tick: RecordedTick, name: str, settings: TierSettings) -> Source:
    decision, sample = tick.decision(name), tick.sample(name)
    age_s = None if decision is None else decision.inputs_age_s
    if sample is None:
        return Source(name=name, state=Freshness.UNKNOWN, age_s=age_s, words="no sample")
    words = f"{sample.replicas_reporting} of {sample.replicas_expected} replicas report"
    if sample.problems:
        words += f": {'; '.join(sample.problems[:3])}"
    if sample.replicas_expected > 0 and sample.replicas_reporting == 0:
        return Source(name=name, state=Freshness.SILENT, age_s=age_s, words=words)
    return Source(name=name, state=_by_age(age_s, settings), age_s=age_s, words=words)


def _by_age(age_s: float | None, settings: TierSettings) -> Freshness:
    if age_s is None:
        return Freshness.UNKNOWN
    return Freshness.FRESH if age_s <= settings.fresh_s else Freshness.STALE


def _seen(
    ticks: Sequence[RecordedTick],
    settings: TierSettings,
    *,
    name: str,
    told: Callable[[Observation], bool],
    talks: bool,
    words: str,
) -> Source:
    now_s = ticks[-1].at_s
    backwards = (o for tick in reversed(ticks) for o in reversed(tick.observations))
    age_s = next((now_s - o.at_s for o in backwards if told(o)), None)
    state = _by_age(age_s, settings)
    if not talks and state is Freshness.STALE:
        state = Freshness.SILENT
    return Source(name=name, state=state, age_s=age_s, words=words or "does not answer")
