"""The few figures of a page, read from captures of real ones, and what a drain makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.local.drains import DrainLook, waits_for
from serving.local.figures import Figures, engine_figures, router_in_flight
from serving.local.startups import StartLog
from serving.types import Phase, StartStage

FIXTURES = Path(__file__).parents[1] / "fixtures"
LINES = (
    "(EngineCore pid=1) INFO core.py Initializing a V1 LLM engine (v0.32.0)",
    "(Worker pid=2) INFO cpu_model_runner.py Starting to load model m...",
    "(Worker pid=2) INFO default_loader.py Loading weights took 0.05 seconds",
    "(EngineCore pid=1) INFO core.py init engine (profile, create kv cache) took 1.47 s",
)


def test_an_engine_page_tells_requests_and_kv() -> None:
    page = (
        'vllm:num_requests_running{engine="0",model_name="m"} 8.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="m"} 15.0\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.5\n'
        'vllm:cache_config_info{block_size="128",engine="0",num_gpu_blocks="80"} 1.0\n'
    )
    figures = engine_figures(page)

    assert (figures.requests, figures.kv_ratio, figures.kv_tokens) == (23.0, 0.5, 5120)


@pytest.mark.parametrize("page", ["", "vllm:num_requests_running nonsense\n", "# HELP x\n"])
def test_what_a_page_does_not_say_is_unknown(page: str) -> None:
    assert engine_figures(page) == Figures()
    assert Figures().requests is None
    assert Figures().kv_tokens is None


def test_real_pages_are_read() -> None:
    pages = sorted(FIXTURES.glob("vllm-0.32/*.prom"))
    read = [engine_figures(page.read_text()) for page in pages]

    assert read
    assert all(figures.requests is not None for figures in read)


def test_the_router_page_counts_what_is_under_way_for_each_worker() -> None:
    page = (
        'vllm_router_pd_active_decode_requests{worker="http://127.0.0.1:2",rank="aggregate"} 22\n'
        'vllm_router_pd_pending_decode_requests{worker="http://127.0.0.1:2",rank="aggregate"} 2\n'
        'vllm_router_pd_prefill_occupancy{worker="http://127.0.0.1:1",rank="aggregate"} 2\n'
        'vllm_router_pd_decode_pending_seconds{quantile="0.5"} 2.9\n'
    )

    assert router_in_flight(page) == {"127.0.0.1:1": 2.0, "127.0.0.1:2": 24.0}


EMPTY = Figures(running=0.0, waiting=0.0, kv_ratio=0.0, kv_capacity_tokens=100.0)
HOLDS = Figures(running=0.0, waiting=0.0, kv_ratio=0.2, kv_capacity_tokens=100.0)
BUSY = Figures(running=1.0, waiting=0.0, kv_ratio=0.2, kv_capacity_tokens=100.0)


@pytest.mark.parametrize(
    ("forgotten", "router_has", "figures", "empty_for_s", "phase", "waits"),
    [
        (False, 0.0, EMPTY, 99.0, Phase.DECODE, "stop choosing"),
        (True, None, EMPTY, 99.0, Phase.DECODE, "the router to say"),
        (True, 2.0, EMPTY, 99.0, Phase.DECODE, "2 requests that the router has"),
        (True, 0.0, None, 99.0, Phase.DECODE, "its page"),
        (True, 0.0, BUSY, 0.0, Phase.DECODE, "1 requests"),
        (True, 0.0, HOLDS, 0.0, Phase.DECODE, None),
        (True, 0.0, HOLDS, 29.0, Phase.PREFILL, "fetch its KV"),
        (True, 0.0, HOLDS, 30.0, Phase.PREFILL, None),
        (True, 0.0, EMPTY, 0.0, Phase.PREFILL, None),
    ],
)
def test_a_drain_waits_for_one_thing_after_another(
    forgotten: bool,
    router_has: float | None,
    figures: Figures | None,
    empty_for_s: float,
    phase: Phase,
    waits: str | None,
) -> None:
    look = DrainLook(
        forgotten=forgotten, router_has=router_has, figures=figures, empty_for_s=empty_for_s
    )
    found = waits_for(look, phase, lease_s=30.0)

    assert found is None if waits is None else waits in (found or "")


def test_the_stages_of_a_start_add_up_to_the_whole() -> None:
    log = StartLog("decode-0001", "decode", asked_s=100.0)
    log.enter(StartStage.WEIGHTS, 100.0)
    log.enter(StartStage.PROCESS, 103.0)
    for at_s, line in zip((110.0, 120.0, 121.0, 124.0), LINES, strict=True):
        log.line(line, at_s)
    log.enter(StartStage.READY, 126.0)
    log.end(127.0)
    record = log.record()

    assert dict(record.stages) == {
        StartStage.PROCESS: 17.0,
        StartStage.WEIGHTS: 4.0,
        StartStage.COMPILE: 5.0,
        StartStage.READY: 1.0,
    }
    assert record.as_json()["seconds"] == 27.0
    assert log.stage is None


def test_a_start_that_goes_on_has_no_end_and_one_that_failed_says_so() -> None:
    log = StartLog("d", "decode", asked_s=0.0)
    assert log.record().as_json()["seconds"] is None
    log.end(5.0, failed=True)
    log.end(9.0)

    assert (log.record().failed, log.record().ended_s) == (True, 5.0)
