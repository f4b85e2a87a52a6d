"""Our own metrics and a trace of every tick by OTLP, to an OpenTelemetry collector.

The same series as on the page, under names with dots and with units, so that a translation to
Prometheus gives the page's names again. The SDK exports from threads of its own: a tick never waits
for it. Needs the extra `otlp`; nothing else imports OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Histogram
from opentelemetry.metrics import Observation as Measured
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, set_span_in_context

from autoscaler.types import Plan
from phasewise.metering import Part, TickDurations
from phasewise.own_metrics import SCRAPE_DURATION, TICK_DURATION, OwnMetrics
from phasewise.own_samples import Sample
from serving.catalogue import MetricSpec, MetricType, Owner, Unit
from serving.own import OWN_BY_NAME, SECONDS_BOUNDS
from serving.series import SERIES
from serving.types import Observation, Slo

EXPORT_EVERY_S = 15.0
GIVES_UP_AFTER_S = 5.0
UNITS: Mapping[Unit, str] = {
    Unit.SECONDS: "s",
    Unit.TOKENS: "{token}",
    Unit.BYTES: "By",
    Unit.REQUESTS: "{request}",
    Unit.EVENTS: "{event}",
    Unit.RATIO: "1",
    Unit.INFO: "",
    Unit.REPLICAS: "{replica}",
    Unit.TOKENS_PER_S: "{token}/s",
    Unit.BYTES_PER_S: "By/s",
    Unit.REQUESTS_PER_S: "{request}/s",
    Unit.EVENTS_PER_S: "{event}/s",
    Unit.MILLISECONDS: "ms",
    Unit.PRODUCT: "1",
}
"""Our units in UCUM, as OpenTelemetry writes them."""
_SUFFIXES = ("_total", "_per_second", "_seconds", "_ratio")  # a translation adds them again


def otlp_name(spec: MetricSpec) -> str:
    """`phasewise_source_age_seconds` as `phasewise.source_age`; `phase:a:b` as `phase.a.b`."""
    if spec.owner is Owner.RECORDED:
        return spec.name.replace(":", ".")
    name = spec.name.replace("_", ".", 1)
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name


class Otlp:
    """Tells an endpoint of every tick. `headers` may hold secrets: they are shown nowhere.

    `endpoint` is the base address of an OTLP/HTTP receiver, as http://127.0.0.1:4318.
    """

    def __init__(
        self,
        own: OwnMetrics,
        *,
        endpoint: str,
        version: str,
        headers: Mapping[str, str] | None = None,
        export_every_s: float = EXPORT_EVERY_S,
    ) -> None:
        base = endpoint.rstrip("/")
        resource = Resource.create({"service.name": "phasewise", "service.version": version})
        sent = dict(headers or {})
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(
                endpoint=f"{base}/v1/metrics", headers=sent, timeout=GIVES_UP_AFTER_S
            ),
            export_interval_millis=export_every_s * 1000.0,
            export_timeout_millis=GIVES_UP_AFTER_S * 1000.0,
        )
        self._meters = MeterProvider(
            resource=resource, metric_readers=[reader], shutdown_on_exit=False
        )
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._traces.add_span_processor(
            BatchSpanProcessor(
                OTLPSpanExporter(
                    endpoint=f"{base}/v1/traces", headers=sent, timeout=GIVES_UP_AFTER_S
                )
            )
        )
        self._tracer = self._traces.get_tracer("phasewise", version)
        meter = self._meters.get_meter("phasewise", version)
        self._histograms: dict[str, Histogram] = {}
        for spec in SERIES:
            if spec.owner not in (Owner.PHASEWISE, Owner.RECORDED):
                continue
            shown = {"name": otlp_name(spec), "unit": UNITS[spec.unit], "description": spec.help}
            if spec.type is MetricType.HISTOGRAM:
                self._histograms[spec.name] = meter.create_histogram(
                    **shown, explicit_bucket_boundaries_advisory=SECONDS_BOUNDS
                )
            elif spec.type is MetricType.COUNTER:
                meter.create_observable_counter(**shown, callbacks=[_of(spec.name, own.counters)])
            else:
                known = own.recorded if spec.owner is Owner.RECORDED else own.gauges
                meter.create_observable_gauge(**shown, callbacks=[_of(spec.name, known)])

    def observe_tick(
        self,
        plan: Plan,
        observations: Sequence[Observation],
        state: Any,
        durations: TickDurations,
        *,
        slo: Slo | None = None,
    ) -> None:
        """Durations into histograms, and the tick as one trace; gauges are read when exported."""
        tier = {"tier": plan.tier}
        scrapes, ticks = self._histograms[SCRAPE_DURATION], self._histograms[TICK_DURATION]
        for look in durations.observe:
            scrapes.record(look.duration_s, tier)
        looked_s = sum(look.duration_s for look in durations.observe)
        ticks.record(looked_s, {**tier, "part": "observe"})
        ticks.record(durations.plan.duration_s, {**tier, "part": "plan"})
        ticks.record(durations.act.duration_s, {**tier, "part": "act"})
        self._trace(plan, durations)

    def _trace(self, plan: Plan, durations: TickDurations) -> None:
        first = durations.observe[0] if durations.observe else durations.plan
        root = self._tracer.start_span(
            "tick",
            start_time=_ns(first.start_s),
            attributes={"tier": plan.tier, "epoch": plan.epoch, "at_s": plan.at_s},
        )
        for look in durations.observe:
            self._child(root, "observe", look)
        self._child(root, "plan", durations.plan)
        self._child(root, "act", durations.act)
        for decision in plan.decisions:
            attributes: dict[str, str | int] = {
                "pool": str(decision.pool),
                "reason": decision.reason.value,
                "words": decision.words,
            }
            if decision.replicas is not None:
                attributes["replicas"] = decision.replicas
            root.add_event("decided", attributes, timestamp=_ns(durations.plan.end_s))
        root.end(end_time=_ns(max(durations.act.end_s, first.start_s)))

    def _child(self, root: Span, name: str, part: Part) -> None:
        span = self._tracer.start_span(
            name, context=set_span_in_context(root), start_time=_ns(part.start_s)
        )
        span.end(end_time=_ns(part.end_s))

    def flush(self) -> None:
        """Send what is there now; blocks for as long as the endpoint takes, within limits."""
        self._meters.force_flush(GIVES_UP_AFTER_S * 1000.0)
        self._traces.force_flush(round(GIVES_UP_AFTER_S * 1000.0))

    def close(self) -> None:
        """Send the last and end the threads; blocks like `flush`."""
        self._meters.shutdown(GIVES_UP_AFTER_S * 1000.0)
        self._traces.shutdown()


def _ns(unix_s: float) -> int:
    return round(unix_s * 1e9)


def _of(
    name: str, known: Callable[[], tuple[Sample, ...]]
) -> Callable[[CallbackOptions], Iterable[Measured]]:
    """What is known of one series when it is exported; nothing where it is not known."""
    assert name in OWN_BY_NAME or name.startswith("phase:")

    def callback(_: CallbackOptions) -> Iterable[Measured]:
        return [Measured(one.value, dict(one.labels)) for one in known() if one.name == name]

    return callback
