"""Our own metrics page, `phasewise_*`, and `phase:*` where phasewise supplies them.

Every tick replaces all gauges of its tier, so that nothing outlives what it is of; counters and
histograms grow while the process runs. A page is made when asked for, from what is remembered.
Other threads may read at any time: they see whole ticks, since each replaces a value as a whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from autoscaler.types import Plan
from collector.aggregates import Recorded, aggregate, last_minute
from phasewise.metering import TickDurations
from phasewise.own_samples import Sample, action_of, is_held, samples_of
from serving.catalogue import MetricSpec, MetricType
from serving.own import OWN, OWN_BY_NAME, SECONDS_BOUNDS
from serving.recorded import RECORDED
from serving.types import Observation, PoolId, Slo

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TICK_DURATION = "phasewise_tick_duration_seconds"
SCRAPE_DURATION = "phasewise_scrape_duration_seconds"
REQUEST_PART = "phasewise_request_part_seconds"
DECISIONS = "phasewise_decisions_total"
Key = tuple[str, tuple[str, ...]]


@dataclass(slots=True)
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS_BOUNDS) + 1))
    sum: float = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(SECONDS_BOUNDS, value)] += 1
        self.sum += value


@dataclass(frozen=True, slots=True)
class _Tier:
    """What the last tick of a tier left behind."""

    samples: tuple[Sample, ...] = ()
    recorded: tuple[Recorded, ...] = ()
    minute: tuple[Observation, ...] = ()
    held_since_s: Mapping[PoolId, float] = field(default_factory=dict)


class OwnMetrics(Collector):
    """All tiers of this process on one page.

    `registry` is where it registers; nothing else need be there. `supplies_recorded` exports the
    recorded series too: only where no rules make them, or every sum would count twice.
    """

    def __init__(
        self,
        *,
        version: str,
        registry: CollectorRegistry | None = None,
        supplies_recorded: bool = False,
    ) -> None:
        self._version = version
        self._supplies_recorded = supplies_recorded
        self._tiers: dict[str, _Tier] = {}
        self._counters: dict[Key, float] = defaultdict(float)
        self._histograms: dict[Key, _Histogram] = defaultdict(_Histogram)
        self.registry = CollectorRegistry(auto_describe=False) if registry is None else registry
        self.registry.register(self)

    def observe_tick(
        self,
        plan: Plan,
        observations: Sequence[Observation],
        state: Any,
        durations: TickDurations,
        *,
        slo: Slo | None = None,
    ) -> None:
        """Take over what a finished tick says of its tier."""
        before = self._tiers.get(plan.tier, _Tier())
        held = {
            d.pool: before.held_since_s.get(d.pool, plan.at_s) for d in plan.decisions if is_held(d)
        }
        minute = last_minute((*before.minute, *observations))
        self._tiers[plan.tier] = _Tier(
            samples=samples_of(plan, observations, state, slo=slo, held_since_s=held),
            recorded=aggregate(minute, tier=plan.tier) if self._supplies_recorded else (),
            minute=minute if self._supplies_recorded else (),
            held_since_s=held,
        )
        present = {pool.pool: pool.desired_replicas for pool in observations[-1].pools}
        for decision in plan.decisions:
            pool, action = decision.pool, action_of(decision, present.get(decision.pool))
            labels = (pool.tier, pool.name, pool.phase.value, action, decision.reason.value)
            self._counters[DECISIONS, labels] += 1.0
        looks = [part.duration_s for part in durations.observe]
        for seconds in looks:
            self._histograms[SCRAPE_DURATION, (plan.tier,)].observe(seconds)
        parts = {
            "observe": sum(looks),
            "plan": durations.plan.duration_s,
            "act": durations.act.duration_s,
        }
        for name, seconds in parts.items():
            self._histograms[TICK_DURATION, (plan.tier, name)].observe(seconds)

    def observe_request_part(self, part: str, *, model: str, pool: str, seconds: float) -> None:
        """Take over how long one part of one request took; empty names where nobody says."""
        self._histograms[REQUEST_PART, (part, model, pool)].observe(seconds)

    def page(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self.registry)

    def gauges(self) -> tuple[Sample, ...]:
        """Every gauge that is known now, of all tiers."""
        of_us = Sample(name="phasewise_build_info", labels={"version": self._version}, value=1.0)
        return (of_us, *(one for tier in tuple(self._tiers.values()) for one in tier.samples))

    def recorded(self) -> tuple[Sample, ...]:
        """The recorded series, if phasewise supplies them."""
        return tuple(
            Sample(
                name=one.spec.name,
                labels=dict(zip(one.spec.labels, one.labels, strict=True)),
                value=one.value,
            )
            for tier in tuple(self._tiers.values())
            for one in tier.recorded
        )

    def counters(self) -> tuple[Sample, ...]:
        """Every counter, since the process started."""
        return tuple(
            Sample(
                name=name,
                labels=dict(zip(OWN_BY_NAME[name].labels, labels, strict=True)),
                value=value,
            )
            for (name, labels), value in tuple(self._counters.items())
        )

    def collect(self) -> Iterable[Metric]:
        """The families that have something to say; whoever has none is not on the page."""
        gauges: dict[str, list[Sample]] = defaultdict(list)
        for sample in (*self.gauges(), *self.recorded(), *self.counters()):
            gauges[sample.name].append(sample)
        for spec in OWN:
            if spec.type is MetricType.HISTOGRAM:
                yield from self._histogram_family(spec)
            elif spec.name in gauges:
                yield _family(spec, gauges[spec.name])
        for recorded in RECORDED:
            if recorded.name in gauges:
                family = GaugeMetricFamily(recorded.name, recorded.help, labels=recorded.labels)
                _fill(family, recorded.labels, gauges[recorded.name])
                yield family

    def _histogram_family(self, spec: MetricSpec) -> Iterable[Metric]:
        family = HistogramMetricFamily(spec.name, spec.help, labels=spec.labels)
        for (name, labels), found in self._histograms.items():
            if name != spec.name:
                continue
            buckets, total = [], 0
            bounds = [*(str(bound) for bound in SECONDS_BOUNDS), "+Inf"]
            for bound, count in zip(bounds, found.counts, strict=True):
                total += count
                buckets.append((bound, total))
            family.add_metric(labels, buckets=buckets, sum_value=found.sum)
        if family.samples:
            yield family


def _family(spec: MetricSpec, samples: Sequence[Sample]) -> Metric:
    kind = CounterMetricFamily if spec.type is MetricType.COUNTER else GaugeMetricFamily
    family = kind(spec.name, spec.help, labels=spec.labels)
    _fill(family, spec.labels, samples)
    return family


def _fill(
    family: GaugeMetricFamily | CounterMetricFamily,
    names: Sequence[str],
    samples: Sequence[Sample],
) -> None:
    for sample in samples:
        family.add_metric([sample.labels[name] for name in names], sample.value)
