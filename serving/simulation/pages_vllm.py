"""The `/metrics` page of one simulated engine process, as vLLM 0.32 writes it for its phase.

Static text is made once for each replica; a scrape only fills in numbers, each of which reads back
exactly. Real pages also carry the durations and sizes of HTTP requests: those are left out, and so
is the movement of Python's own series. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from serving.simulation.page_text import PageTemplate, label_set, python_counts, python_text
from serving.simulation.pages_vllm_families import FAMILIES, SINGLE_ANSWERS, Family, Source
from serving.simulation.telemetry import Histogram, ReplicaTelemetry
from serving.types import Phase

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"

_PYTHON = """\
# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 15024.0
python_gc_objects_collected_total{generation="1"} 2608.0
python_gc_objects_collected_total{generation="2"} 553.0
# HELP python_gc_objects_uncollectable_total Uncollectable objects found during GC
# TYPE python_gc_objects_uncollectable_total counter
python_gc_objects_uncollectable_total{generation="0"} 0.0
python_gc_objects_uncollectable_total{generation="1"} 0.0
python_gc_objects_uncollectable_total{generation="2"} 0.0
# HELP python_gc_collections_total Number of times this generation was collected
# TYPE python_gc_collections_total counter
python_gc_collections_total{generation="0"} 1577.0
python_gc_collections_total{generation="1"} 143.0
python_gc_collections_total{generation="2"} 10.0
# HELP python_info Python platform information
# TYPE python_info gauge
python_info{implementation="CPython",major="3",minor="11",patchlevel="7",version="3.11.7"} 1.0
# HELP process_virtual_memory_bytes Virtual memory size in bytes.
# TYPE process_virtual_memory_bytes gauge
process_virtual_memory_bytes 1.957789696e+09
# HELP process_resident_memory_bytes Resident memory size in bytes.
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 6.75848192e+08"""

_FILES = """\
# HELP process_open_fds Number of open file descriptors.
# TYPE process_open_fds gauge
process_open_fds 34.0
# HELP process_max_fds Maximum number of open file descriptors.
# TYPE process_max_fds gauge
process_max_fds 20000.0"""

_CACHE_CONFIG = {
    **{"_block_size_resolved": "True", "cache_dtype": "auto", "cache_hit_alignment_tokens": "None"},
    **{"enable_mamba_shared_prefix_checkpoint": "False", "enable_prefix_caching": "True"},
    **{"gpu_memory_utilization": "0.92", "hash_block_size": "None", "is_attention_free": "False"},
    **{"kv_cache_dtype_skip_layers": "[]", "kv_cache_layout": "None"},
    **{"kv_cache_memory_bytes": "None", "kv_offloading_backend": "native"},
    **{"kv_offloading_size": "None", "kv_sharing_fast_prefill": "False"},
    **{"mamba_block_size": "None", "mamba_cache_dtype": "auto", "mamba_cache_mode": "none"},
    **{"mamba_page_size_padded": "None", "mamba_ssm_cache_dtype": "float32"},
    **{"num_cpu_blocks": "None", "num_gpu_blocks_override": "None"},
    **{"prefix_cache_retention_interval": "0", "prefix_caching_hash_algo": "sha256"},
    **{"prefix_match_unit": "None", "replayssm_buffer_len": "16"},
    **{"skip_page_size_padded": "None", "sliding_window": "None", "swa_bounded_replay": "True"},
    **{"use_kda_recoverssm": "False", "use_replayssm": "False"},
    **{"user_specified_block_size": "False"},
}

_SINGLE_ANSWER_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0)


class VllmPage:
    """Renders the page of one replica from its telemetry.

    `telemetry` gives the bounds and the start of the process; `render` takes the one to show, so
    that a late or frozen page is made of an earlier copy.
    """

    def __init__(
        self,
        telemetry: ReplicaTelemetry,
        *,
        model: str,
        phase: Phase,
        kv_capacity_tokens: int,
        block_size_tokens: int,
        max_model_len: int,
    ) -> None:
        self._model = model
        self._families = tuple(family for family in FAMILIES if phase in family.phases)
        self._created = python_text(telemetry.process_start_time_s)
        self._template = PageTemplate()
        self._write_process()
        for family in self._families:
            self._write_family(family, telemetry)
        self._write_cache_config(kv_capacity_tokens, block_size_tokens, max_model_len)

    def render(self, telemetry: ReplicaTelemetry) -> bytes:
        """The page that shows these numbers."""
        numbers = [python_text(telemetry.process_cpu_s)]
        for family in self._families:
            if family.kind == "histogram":
                histogram = _histogram_of(family, telemetry)
                buckets = python_counts(histogram.counts)
                numbers += buckets
                numbers.append(buckets[-1])
                numbers.append(python_text(histogram.sum))
            else:
                for _, source in family.series:
                    if not isinstance(source, int):
                        numbers.append(python_text(_value_of(source, telemetry)))
        return (self._template.fill(numbers) + self._http_requests(telemetry)).encode()

    def _write_process(self) -> None:
        page = self._template
        page.fixed(_PYTHON)
        name = "process_start_time_seconds"
        page.header(name, "gauge", "Start time of the process since unix epoch in seconds.")
        page.fixed(f"{name} {self._created}")
        name = "process_cpu_seconds_total"
        page.header(name, "counter", "Total user and system CPU time spent in seconds.")
        page.hole(name)
        page.fixed(_FILES)

    def _write_family(self, family: Family, telemetry: ReplicaTelemetry) -> None:
        name, page = family.name, self._template
        if family.kind == "histogram":
            page.header(name, "histogram", family.help)
            self._write_histogram(family, telemetry)
        else:
            wire_name = f"{name}_total" if family.kind == "counter" else name
            page.header(wire_name, family.kind, family.help)
            for value, source in family.series:
                series = wire_name + self._labels(family, value)
                if isinstance(source, int):
                    page.fixed(f"{series} {python_text(source)}")
                else:
                    page.hole(series)
        if family.kind != "gauge":
            page.header(f"{name}_created", "gauge", family.help)
            for value, _ in family.series or (("", 0),):
                page.fixed(f"{name}_created{self._labels(family, value)} {self._created}")

    def _write_histogram(self, family: Family, telemetry: ReplicaTelemetry) -> None:
        labels = {"engine": "0", "model_name": self._model}
        for bound in (*_histogram_of(family, telemetry).bounds, float("inf")):
            bucket = label_set({**labels, "le": python_text(bound)})
            self._template.hole(f"{family.name}_bucket{bucket}")
        self._template.hole(f"{family.name}_count{label_set(labels)}")
        self._template.hole(f"{family.name}_sum{label_set(labels)}")

    def _write_cache_config(
        self, kv_capacity_tokens: int, block_size_tokens: int, max_model_len: int
    ) -> None:
        labels = {
            **_CACHE_CONFIG,
            "block_size": str(block_size_tokens),
            "effective_attention_block_size": str(block_size_tokens),
            "engine": "0",
            "kv_cache_max_concurrency": repr(kv_capacity_tokens / max_model_len),
            "kv_cache_size_tokens": str(kv_capacity_tokens),
            "num_gpu_blocks": str(kv_capacity_tokens // block_size_tokens),
        }
        name = "vllm:cache_config_info"
        self._template.header(name, "gauge", "Information of the LLMEngine CacheConfig")
        self._template.fixed(f"{name}{label_set(labels)} 1.0")

    def _labels(self, family: Family, value: str) -> str:
        labels = {"model_name": self._model}
        if family.engine_label:
            labels["engine"] = "0"
        if family.label:
            labels[family.label] = value
        return label_set(labels)

    def _http_requests(self, telemetry: ReplicaTelemetry) -> str:
        """The one series of the HTTP server: like the real one, absent before the first answer."""
        answered = {
            "2xx": telemetry.finished_stop + telemetry.finished_length,
            "5xx": telemetry.finished_error,
        }
        series = [
            (label_set({"handler": "/v1/completions", "method": "POST", "status": status}), count)
            for status, count in answered.items()
            if count
        ]
        if not series:
            return ""
        page = PageTemplate()
        text = "Total number of requests by method, status and handler."
        page.header("http_requests_total", "counter", text)
        for labels, count in series:
            page.fixed(f"http_requests_total{labels} {python_text(count)}")
        page.header("http_requests_created", "gauge", text)
        for labels, _ in series:
            page.fixed(f"http_requests_created{labels} {self._created}")
        return page.fill(())


def _value_of(source: Source, telemetry: ReplicaTelemetry) -> float:
    match source:
        case int():
            return source
        case str():
            value: float = getattr(telemetry, source)
            return value
        case _:
            return sum(_value_of(part, telemetry) for part in source)


def _histogram_of(family: Family, telemetry: ReplicaTelemetry) -> Histogram:
    if family.histogram != SINGLE_ANSWERS:
        histogram: Histogram = getattr(telemetry, family.histogram)
        return histogram
    single = Histogram(_SINGLE_ANSWER_BOUNDS)
    single.observe(1.0, telemetry.request_output_tokens.count)
    return single
