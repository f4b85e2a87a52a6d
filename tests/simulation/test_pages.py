"""The simulated pages have the names, labels and buckets of pages that real processes wrote."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

from serving.simulation.page_text import (
    PageTemplate,
    go_counts,
    go_text,
    label_set,
    python_counts,
    python_text,
    rust_text,
)
from serving.simulation.pages_epp import EppPage
from serving.simulation.pages_vllm import VllmPage
from serving.simulation.pages_vllm_router import DURATION_BOUNDS_S, VllmRouterPage, rebucketed
from serving.simulation.telemetry import Histogram, ReplicaTelemetry, RouterTelemetry
from serving.types import Phase, ReplicaState

FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURES = {Phase.PREFILL: "prefill", Phase.DECODE: "decode", Phase.BOTH: "single"}
LEFT_OUT = re.compile(
    r"http_request_size_bytes|http_response_size_bytes|http_request_duration(_highr)?_seconds"
)


def capture(phase: Phase) -> str:
    return (FIXTURES / "vllm-0.32" / f"{CAPTURES[phase]}.prom").read_text()


def filled(telemetry: Any, *, seed: int = 1) -> Any:
    """Every number of it different from zero, sums and counts of odd lengths."""
    rng = random.Random(seed)
    for name, value in vars(telemetry).items():
        if isinstance(value, Histogram):
            for _ in range(300):
                value.observe(rng.expovariate(1.0) * value.bounds[len(value.bounds) // 2])
        elif isinstance(value, float):
            setattr(telemetry, name, value + rng.random())
        elif isinstance(value, int):
            setattr(telemetry, name, rng.randrange(1, 10**8))
    return telemetry


def busy(max_model_len: int = 4096) -> ReplicaTelemetry:
    telemetry: ReplicaTelemetry = filled(
        ReplicaTelemetry(process_start_time_s=1.79598021942e09, max_model_len=max_model_len)
    )
    return telemetry


def page_of(telemetry: ReplicaTelemetry, phase: Phase, *, model: str = "tiny") -> str:
    page = VllmPage(
        telemetry,
        model=model,
        phase=phase,
        kv_capacity_tokens=1_048_576,
        block_size_tokens=128,
        max_model_len=4096,
    )
    return page.render(telemetry).decode()


def shape(text: str) -> list[str]:
    """Every line less its number, in order, without the families that are left out."""
    lines = [line for line in text.splitlines() if not LEFT_OUT.search(line)]
    return [line if line.startswith("#") else line.rpartition(" ")[0] for line in lines]


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(text: str, series: str, /, **labels: str) -> float:
    found = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == series and labels.items() <= sample.labels.items()
    ]
    assert len(found) == 1, (series, labels, found)
    return found[0]


@pytest.mark.parametrize("phase", list(Phase))
def test_a_page_has_every_line_of_the_captured_one_but_its_numbers(phase: Phase) -> None:
    # the toy engine was given its cache size in bytes; the simulated one is not
    expected = capture(phase).replace(
        'kv_cache_memory_bytes="1073741824"', 'kv_cache_memory_bytes="None"'
    )

    telemetry = busy()
    telemetry.finished_error = 0  # as in the capture

    assert shape(page_of(telemetry, phase)) == shape(expected)


@pytest.mark.parametrize("phase", list(Phase))
def test_only_the_families_of_http_sizes_and_durations_are_left_out(phase: Phase) -> None:
    missing = families(capture(phase)).keys() - families(page_of(busy(), phase)).keys()

    assert {name.removesuffix("_created") for name in missing} == {
        "http_request_size_bytes",
        "http_response_size_bytes",
        "http_request_duration_highr_seconds",
        "http_request_duration_seconds",
    }


def test_only_decode_says_at_which_stage_its_kv_fetches_are() -> None:
    name = "vllm:num_requests_kv_fetch_by_stage"

    assert [name in page_of(busy(), phase) for phase in Phase] == [False, True, False]


def test_no_page_mentions_http_requests_before_the_first_answer() -> None:
    fresh = ReplicaTelemetry(process_start_time_s=1e9, max_model_len=4096)

    assert "http_requests" not in page_of(fresh, Phase.BOTH)
    fresh.finished_error = 3
    assert value(page_of(fresh, Phase.BOTH), "http_requests_total", status="5xx") == 3.0


@pytest.mark.parametrize(
    ("name", "labels", "attribute"),
    [
        ("vllm:num_requests_running", {}, "running_requests"),
        (
            "vllm:num_requests_waiting_by_reason",
            {"reason": "deferred"},
            "waiting_deferred_requests",
        ),
        ("vllm:kv_cache_usage_perc", {}, "kv_used_ratio"),
        ("vllm:prompt_tokens_total", {}, "prompt_tokens"),
        (
            "vllm:prompt_tokens_by_source_total",
            {"source": "local_compute"},
            "computed_prompt_tokens",
        ),
        (
            "vllm:prompt_tokens_by_source_total",
            {"source": "external_kv_transfer"},
            "transferred_prompt_tokens",
        ),
        ("vllm:generation_tokens_total", {}, "output_tokens"),
        ("vllm:request_success_total", {"finished_reason": "error"}, "finished_error"),
        ("vllm:num_preemptions_total", {}, "preemptions"),
        ("vllm:nixl_num_failed_transfers_total", {}, "kv_transfer_failures"),
        ("vllm:nixl_num_kv_expired_reqs_total", {}, "kv_expired_requests"),
        ("process_start_time_seconds", {}, "process_start_time_s"),
        ("process_cpu_seconds_total", {}, "process_cpu_s"),
    ],
)
def test_a_number_reads_back_as_it_was_kept(
    name: str, labels: dict[str, str], attribute: str
) -> None:
    telemetry = busy()

    assert value(page_of(telemetry, Phase.DECODE), name, **labels) == getattr(telemetry, attribute)


def test_waiting_requests_are_those_of_both_reasons() -> None:
    telemetry = busy()
    text = page_of(telemetry, Phase.DECODE)

    by_reason = [
        value(text, "vllm:num_requests_waiting_by_reason", reason=reason)
        for reason in ("capacity", "deferred")
    ]
    assert value(text, "vllm:num_requests_waiting") == sum(by_reason)


def test_a_histogram_is_cumulative_and_keeps_a_negative_sum() -> None:
    telemetry = ReplicaTelemetry(process_start_time_s=1e9, max_model_len=4096)
    telemetry.queue_time.observe(0.4)
    telemetry.queue_time.observe(-1_056_000.25)  # never scheduled: minus the host's uptime
    text = page_of(telemetry, Phase.DECODE)
    name = "vllm:request_queue_time_seconds"

    assert [value(text, f"{name}_bucket", le=le) for le in ("0.3", "0.5", "+Inf")] == [1, 2, 2]
    assert value(text, f"{name}_sum") == 0.4 - 1_056_000.25
    assert value(text, f"{name}_count") == 2


def test_the_cache_size_is_told_in_tokens_and_in_blocks() -> None:
    info = families(page_of(busy(), Phase.PREFILL))["vllm:cache_config_info"].samples[0].labels

    assert info["kv_cache_size_tokens"] == "1048576"
    assert int(info["num_gpu_blocks"]) * int(info["block_size"]) == 1_048_576


def test_labels_are_escaped() -> None:
    text = page_of(busy(), Phase.PREFILL, model='a"b\\c 100%')

    assert families(text)["vllm:num_requests_running"].samples[0].labels["model_name"] == (
        'a"b\\c 100%'
    )


def test_a_page_shows_the_telemetry_it_is_given_not_that_it_was_made_from() -> None:
    first, second = busy(), filled(busy(), seed=2)
    page = VllmPage(
        first,
        model="tiny",
        phase=Phase.BOTH,
        kv_capacity_tokens=4096,
        block_size_tokens=16,
        max_model_len=4096,
    )

    assert page.render(second) != page.render(first)
    assert value(page.render(second).decode(), "vllm:prompt_tokens_total") == second.prompt_tokens


# --- numbers as text


@given(st.floats(allow_nan=False))
def test_python_text_is_that_of_prometheus_client(number: float) -> None:
    theirs: str = floatToGoString(number)  # type: ignore[no-untyped-call]

    assert python_text(number) == theirs


@given(st.floats(allow_nan=False))
def test_every_form_reads_back_exactly(number: float) -> None:
    assert [float(form(number)) for form in (python_text, go_text, rust_text)] == [number] * 3


def test_not_a_number_is_written_as_one() -> None:
    assert all(math.isnan(float(form(math.nan))) for form in (python_text, go_text, rust_text))


@pytest.mark.parametrize(
    ("number", "python", "go", "rust"),
    [
        (102, "102.0", "102", "102"),
        (0.5, "0.5", "0.5", "0.5"),
        (1_000_000, "1e+06", "1e+06", "1000000"),
        (2_097_152, "2.097152e+06", "2.097152e+06", "2097152"),
        (999_999, "999999.0", "999999", "999999"),
        (1e-7, "1e-07", "1e-07", "0.0000001"),
    ],
)
def test_each_client_has_its_own_form(number: float, python: str, go: str, rust: str) -> None:
    assert (python_text(number), go_text(number), rust_text(number)) == (python, go, rust)


@given(st.lists(st.integers(min_value=0, max_value=10**7), min_size=1, max_size=8))
def test_counts_are_cumulated_in_the_form_of_their_client(counts: list[int]) -> None:
    sums = [sum(counts[: end + 1]) for end in range(len(counts))]

    assert python_counts(counts) == [python_text(n) for n in sums]
    assert go_counts(counts) == [go_text(n) for n in sums]


def test_a_template_refuses_a_wrong_number_of_numbers() -> None:
    template = PageTemplate()
    template.fixed("# 100 %")
    template.hole("a")

    assert template.fill(["1"]) == "# 100 %\na 1\n"
    with pytest.raises(TypeError):
        template.fill(["1", "2"])


def test_labels_are_sorted_by_name_unless_told() -> None:
    assert label_set({"b": "1", "a": "2"}) == '{a="2",b="1"}'
    assert label_set({"b": "1", "a": "2"}, ordered=False) == '{b="1",a="2"}'
    assert label_set({}) == ""


# --- the endpoint picker


def replica(name: str, phase: Phase, **numbers: float) -> Any:
    telemetry = ReplicaTelemetry(process_start_time_s=1e9, max_model_len=4096)
    for attribute, number in numbers.items():
        setattr(telemetry, attribute, number)
    return SimpleNamespace(name=name, phase=phase, telemetry=telemetry, state=ReplicaState.READY)


REPLICAS = [
    replica("prefill-0000", Phase.PREFILL, kv_used_ratio=0.2, running_requests=1),
    replica("decode-0001", Phase.DECODE, kv_used_ratio=0.6, waiting_deferred_requests=3),
]


def busy_router() -> RouterTelemetry:
    router: RouterTelemetry = filled(RouterTelemetry())
    router.attempts = {"prefill-0000": 7, "decode-0001": 7}
    router.prefill_requests = {"prefill-0000": 7}
    router.decode_requests = {"decode-0001": 5}
    router.active_prefill_requests = {"prefill-0000": 2}
    router.active_prefill_tokens = {"prefill-0000": 900}
    router.active_decode_requests = {"decode-0001": 4}
    router.pending_decode_requests = {"decode-0001": 2}
    return router


def epp_text(router: RouterTelemetry, *, deprecated_names: bool = False) -> str:
    page = EppPage(model="m", inference_pool="tier", deprecated_names=deprecated_names)
    return page.render(router, REPLICAS).decode()


def label_names(samples: Iterable[Any]) -> set[frozenset[str]]:
    return {frozenset(sample.labels) - {"le"} for sample in samples}


@pytest.mark.parametrize(
    "fixture",
    [
        "llm_d_request_total_metric",
        "llm_d_request_error_total_metric",
        "llm_d_request_duration_seconds_metric",
        "llm_d_running_requests_metrics",
        "llm_d_scheduler_attempts_with_result_metrics",
        "kv_cache_avg_metrics",  # an older name beside the new one
    ],
)
def test_the_picker_s_names_types_labels_and_bounds_are_those_of_its_own_tests(
    fixture: str,
) -> None:
    ours = families(epp_text(busy_router(), deprecated_names=True))
    theirs = families((FIXTURES / "llm-d-router" / f"{fixture}.txt").read_text())

    assert theirs
    for name, family in theirs.items():
        assert ours[name].type == family.type
        assert ours[name].documentation == family.documentation
        assert label_names(ours[name].samples) == label_names(family.samples)
        assert bounds(ours[name].samples) == bounds(family.samples)


def test_the_picker_s_numbers_read_back() -> None:
    router = busy_router()
    text = epp_text(router)

    assert value(text, "llm_d_epp_request_total") == router.requests
    assert value(text, "llm_d_epp_request_error_total") == router.failed
    assert value(text, "llm_d_epp_request_ttft_seconds_sum", streaming="true") == router.ttft.sum
    assert value(text, "llm_d_epp_inflight_tokens", endpoint_name="prefill-0000") == 900
    assert value(text, "llm_d_epp_inflight_requests", endpoint_name="decode-0001") == 4
    assert value(text, "llm_d_epp_ready_endpoints", name="tier") == 2
    assert value(text, "llm_d_epp_average_kv_cache_utilization") == 0.4  # prefill and decode
    assert value(text, "llm_d_epp_average_queue_size") == 1.5


def bounds(samples: Iterable[Any]) -> set[float]:
    return {float(sample.labels["le"]) for sample in samples if "le" in sample.labels}


def test_a_fresh_picker_says_nothing_of_requests() -> None:
    names = families(epp_text(RouterTelemetry())).keys()

    assert "llm_d_epp_ready_endpoints" in names
    assert not [name for name in names if "request_" in name or "decision" in name]


def test_older_names_are_written_beside_the_new_ones_only_when_asked() -> None:
    router = busy_router()
    text = epp_text(router, deprecated_names=True)

    assert value(text, "inference_objective_request_total") == router.requests
    assert value(text, "inference_pool_ready_pods") == 2
    assert value(text, "inference_objective_input_tokens_sum") == router.input_tokens.sum
    assert set(families(text)["inference_objective_running_requests"].samples[0].labels) == {
        "model_name"
    }
    assert "inference_" not in epp_text(router)


def test_go_pages_are_sorted_by_family() -> None:
    names = re.findall(r"# TYPE (\S+)", epp_text(busy_router(), deprecated_names=True))

    assert names == sorted(names)
    assert len(names) == len(set(names))


# --- vllm-router


def router_text(router: RouterTelemetry, *, aggregated: bool = False) -> str:
    page = VllmRouterPage(policy="round_robin", aggregated=aggregated)
    urls = {"prefill-0000": "http://127.0.0.1:8101", "decode-0001": "http://127.0.0.1:8102"}
    return page.render(router, REPLICAS, urls).decode()


def series_of(text: str) -> set[str]:
    return {line.rpartition(" ")[0] for line in text.splitlines() if line}


def test_the_poorer_router_page_has_the_captured_series_and_no_other() -> None:
    router = busy_router()
    router.prefill_errors = router.decode_errors = 0  # none happened in the capture
    captured = (FIXTURES / "vllm-router-0.1.17" / "router.prom").read_text()

    assert series_of(router_text(router)) == series_of(captured)


def test_the_poorer_router_page_tells_no_first_token_and_no_gap() -> None:
    assert not re.search(r"ttft|first_token|itl|inter_token|tpot", router_text(busy_router()))


def test_the_poorer_router_counts_itself_what_it_has_at_prefill() -> None:
    name = "vllm_router_pd_prefill_occupancy"

    assert value(router_text(busy_router()), name) == 2


def test_errors_of_the_poorer_router_appear_with_the_first_one() -> None:
    router = busy_router()
    router.prefill_errors = 2

    assert value(router_text(router), "vllm_router_pd_prefill_errors_total") == 2


def test_an_aggregated_tier_has_no_names_of_prefill_and_decode() -> None:
    text = router_text(busy_router(), aggregated=True)

    assert "_pd_" not in text
    assert value(text, "vllm_router_requests_total") == busy_router().requests


@given(st.lists(st.floats(min_value=0.0, max_value=1e4), max_size=30))
def test_rebucketed_counts_never_claim_more_than_was_seen(samples: list[float]) -> None:
    histogram = Histogram(RouterTelemetry().ttft.bounds)
    for sample in samples:
        histogram.observe(sample)
    counts = rebucketed(histogram)

    assert list(counts) == sorted(counts)
    for bound, count in zip(DURATION_BOUNDS_S, counts, strict=True):
        assert count <= sum(sample <= bound for sample in samples)
