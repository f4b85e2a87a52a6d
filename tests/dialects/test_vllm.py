"""vLLM's page in our words, over its versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collector.exposition import read_page
from serving.dialects import vllm
from serving.errors import Unavailable
from serving.types import HistogramReading, Phase, ReplicaReading

FIXTURES = Path(__file__).parents[1] / "fixtures"


def captured(name: str) -> str:
    return (FIXTURES / "vllm-0.32" / f"{name}.prom").read_text()


def read(text: str, phase: Phase = Phase.PREFILL) -> ReplicaReading:
    page = read_page(text.encode(), vllm.WANTED)
    return vllm.replica_reading(page, replica="r", at_s=5.0, phase=phase)


def without(text: str, name: str) -> str:
    return "".join(x for x in text.splitlines(keepends=True) if not x.startswith(name))


def test_a_prefill_replica_computes_and_a_decode_replica_receives() -> None:
    prefill, decode = read(captured("prefill")), read(captured("decode"), Phase.DECODE)

    assert (prefill.prompt_tokens, decode.prompt_tokens) == (84_880.0, 77_000.0)
    assert (prefill.computed_prompt_tokens, decode.computed_prompt_tokens) == (78_480.0, 0.0)
    assert (prefill.cached_prompt_tokens, decode.cached_prompt_tokens) == (6_400.0, 0.0)
    assert (prefill.transferred_prompt_tokens, decode.transferred_prompt_tokens) == (0.0, 77_000.0)
    assert (prefill.output_tokens, decode.output_tokens) == (614.0, 4_832.0)


def test_a_page_under_load_is_read_in_full() -> None:
    reading = read(captured("decode-under-load"), Phase.DECODE)

    assert reading.running_requests == 8.0
    assert reading.waiting_requests == 15.0
    assert reading.deferred_requests == 0.0
    assert reading.kv_used_ratio == 0.9113924050632911
    assert reading.kv_capacity_tokens == 10_240.0  # kv_cache_size_tokens; 80 blocks of 128
    assert reading.preemptions == 5.0
    assert reading.finished_requests == 62.0
    assert reading.process_start_time_s == 1_795_980_906.5
    assert reading.process_cpu_s == 10.28
    assert reading.step_tokens is not None
    assert (reading.step_tokens.count, reading.step_tokens.sum) == (1_684.0, 3_551.0)
    assert reading.itl is not None
    assert reading.itl.bounds[:3] == (0.01, 0.025, 0.05)
    assert reading.itl.cumulative[:3] == (333.0, 1_600.0, 2_587.0)
    assert reading.kv_transfer_bytes is not None
    assert reading.kv_transfer_bytes.sum == 1_174_405_120.0


def test_every_field_is_known_on_a_captured_pair() -> None:
    for name in ("prefill", "decode", "prefill-under-load", "decode-under-load"):
        reading = read(captured(name))
        unknown = [f for f in reading.__slots__ if getattr(reading, f) is None]

        assert unknown == ["steps"], name  # these engines had no step exporter


def test_failed_requests_are_not_among_the_finished_ones() -> None:
    reading = read(captured("decode-prefill-dead"), Phase.DECODE)

    assert (reading.finished_requests, reading.failed_requests) == (133.0, 1.0)
    assert reading.kv_transfer_failures == 2.0
    assert reading.queue_time is not None
    assert reading.queue_time.sum < 0.0  # vLLM took the host's uptime off it


def test_an_aggregated_engine_knows_nothing_of_transfers() -> None:
    reading = read(captured("single"), Phase.BOTH)

    assert reading.computed_prompt_tokens == 127_104.0
    assert reading.kv_transfer_time is None
    assert reading.kv_transfer_failures is None
    assert reading.kv_expired_requests is None


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("vllm:num_requests_running", "running_requests"),
        ("vllm:num_requests_waiting_by_reason", "deferred_requests"),
        ("vllm:kv_cache_usage_perc", "kv_used_ratio"),
        ("vllm:cache_config_info", "kv_capacity_tokens"),
        ("vllm:generation_tokens", "output_tokens"),
        ("vllm:request_success", "finished_requests"),
        ("vllm:num_preemptions", "preemptions"),
        ("vllm:iteration_tokens", "step_tokens"),
        ("vllm:inter_token_latency", "itl"),
        ("process_start_time", "process_start_time_s"),
    ],
)
def test_an_absent_series_is_unknown_and_never_zero(name: str, field: str) -> None:
    assert getattr(read(without(captured("decode"), name)), field) is None


@pytest.mark.parametrize("bad", ["NaN", "+Inf", "-Inf", "-3.0"])
def test_a_gauge_that_is_no_count_is_unknown(bad: str) -> None:
    text = re.sub(r"(vllm:num_requests_running\{[^}]*\}) \S+", rf"\1 {bad}", captured("decode"))

    assert read(text).running_requests is None


def test_kv_usage_over_one_is_unknown() -> None:
    text = re.sub(r"(vllm:kv_cache_usage_perc\{[^}]*\}) \S+", r"\1 91.5", captured("decode"))

    assert read(text).kv_used_ratio is None


def before_0_16(text: str) -> str:
    return without(text, "vllm:prompt_tokens_by_source")


def test_before_0_16_prefill_computes_what_its_cache_did_not_have() -> None:
    reading = read(before_0_16(captured("prefill")), Phase.PREFILL)

    assert reading.computed_prompt_tokens == 78_480.0  # 84,880 prompt - 6,400 hits
    assert reading.cached_prompt_tokens == 6_400.0


@pytest.mark.parametrize("phase", [Phase.DECODE, Phase.BOTH])
def test_before_0_16_nobody_can_say_what_other_replicas_compute(phase: Phase) -> None:
    reading = read(before_0_16(captured("decode")), phase)

    assert reading.computed_prompt_tokens is None
    assert reading.transferred_prompt_tokens == 77_000.0


def test_a_broken_split_by_source_is_not_replaced_by_the_old_way() -> None:
    text = captured("prefill").replace('source="local_compute"} 78480.0', 'source="x"} many')

    assert read(text).computed_prompt_tokens is None


def test_names_of_0_9_are_read() -> None:
    old = (
        before_0_16(captured("prefill-under-load"))
        .replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
        .replace("vllm:prefix_cache_", "vllm:gpu_prefix_cache_")
        .replace("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
    )
    new, reading = read(captured("prefill-under-load")), read(old)

    assert reading.kv_used_ratio == new.kv_used_ratio
    assert reading.cached_prompt_tokens == new.cached_prompt_tokens
    assert reading.itl == new.itl


def test_a_name_that_is_emitted_under_both_spellings_counts_once() -> None:
    text = captured("decode")
    again = "".join(
        x.replace("inter_token_latency_seconds", "time_per_output_token_seconds")
        for x in text.splitlines(keepends=True)
        if x.startswith("vllm:inter_token_latency_seconds")
    )

    assert read(text + again).itl == read(text).itl


def two_ranks(text: str) -> str:
    second = [
        x.replace('engine="0"', 'engine="1"')
        for x in text.splitlines(keepends=True)
        if x.startswith("vllm:") and 'engine="0"' in x
    ]
    return text + "".join(second)


def test_ranks_of_one_process_are_summed() -> None:
    one, both = read(captured("decode-under-load")), read(two_ranks(captured("decode-under-load")))

    assert one.running_requests is not None
    assert both.running_requests == 2.0 * one.running_requests
    assert both.kv_used_ratio == one.kv_used_ratio
    assert both.kv_capacity_tokens == 20_480.0
    assert both.output_tokens == 2.0 * 3_551.0
    assert both.process_cpu_s == one.process_cpu_s
    assert isinstance(both.itl, HistogramReading)
    assert isinstance(one.itl, HistogramReading)
    assert both.itl.cumulative == tuple(2.0 * n for n in one.itl.cumulative)


def test_a_series_that_lacks_a_rank_is_unknown_and_not_half() -> None:
    text = two_ranks(captured("decode"))
    text = "".join(
        x
        for x in text.splitlines(keepends=True)
        if not (x.startswith("vllm:generation_tokens_total") and 'engine="1"' in x)
    )
    reading = read(text, Phase.DECODE)

    assert reading.output_tokens is None
    assert reading.prompt_tokens == 2.0 * 77_000.0


def test_names_of_v0_give_what_they_have_and_nothing_else() -> None:
    reading = read((FIXTURES / "vllm-legacy" / "v0-names.txt").read_text())

    assert reading.running_requests == 0.0
    assert reading.kv_used_ratio == 0.0
    assert reading.output_tokens == 7.0
    assert reading.itl is not None
    assert reading.itl.count == 6.0
    assert reading.computed_prompt_tokens is None
    assert reading.preemptions is None


@pytest.mark.parametrize("text", ["<html>404</html>\n", "process_cpu_seconds_total 3\n"])
def test_a_page_of_something_else_is_unavailable(text: str) -> None:
    with pytest.raises(Unavailable, match="no series of vLLM"):
        read(text)


@pytest.mark.parametrize(
    ("labels", "capacity"),
    [
        ('kv_cache_size_tokens="4096"', 4_096.0),
        ('block_size="16",num_gpu_blocks="100"', 1_600.0),
        ('block_size="16",kv_cache_size_tokens="None",num_gpu_blocks="100"', 1_600.0),
        ('block_size="None",num_gpu_blocks="100"', None),
        ('num_gpu_blocks="None",block_size="16"', None),
        ('block_size="16",num_gpu_blocks="-1"', None),
    ],
)
def test_kv_capacity_comes_from_labels_of_any_version(labels: str, capacity: float | None) -> None:
    text = f"vllm:num_requests_running 0\nvllm:cache_config_info{{{labels}}} 1.0\n"

    assert read(text).kv_capacity_tokens == capacity
