"""vllm-router's page in our words."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.exposition import read_page
from serving.dialects import vllm_router
from serving.types import RouterReading

FIXTURES = Path(__file__).parents[1] / "fixtures" / "vllm-router-0.1.17"


def read(text: str) -> RouterReading:
    return vllm_router.router_reading(read_page(text.encode(), vllm_router.WANTED), at_s=5.0)


@pytest.mark.parametrize(
    ("page", "requests", "running", "failed"),
    [
        pytest.param("router", 101.0, 0.0, None, id="idle"),
        # 35 chosen, of which decode has begun to answer 33: 22 + 2 under way
        pytest.param("router-under-load", 35.0, 24.0, None, id="under-load"),
        pytest.param("router-2p2d", 200.0, 0.0, None, id="two-of-each"),
        pytest.param("router-prefill-dead", 81.0, 0.0, 1.0, id="prefill-dead"),
    ],
)
def test_a_captured_page_gives_arrivals_and_what_is_under_way(
    page: str, requests: float, running: float, failed: float | None
) -> None:
    reading = read((FIXTURES / f"{page}.prom").read_text())

    assert reading.source == "vllm-router"
    assert reading.requests == requests
    assert reading.running_requests == running
    assert reading.failed_requests == failed


def test_an_aggregated_router_counts_each_request_once() -> None:
    reading = read(
        'vllm_router_processed_requests_total{worker="a"} 6\n'
        'vllm_router_processed_requests_total{worker="b"} 4\n'
        'vllm_router_requests_total{route="/v1/completions"} 8\n'
        'vllm_router_running_requests{worker="a"} 2\n'
    )

    assert (reading.requests, reading.running_requests) == (10.0, 2.0)


def test_without_arrivals_what_was_answered_is_all_there_is() -> None:
    assert read('vllm_router_requests_total{route="/v1/completions"} 8\n').requests == 8.0


def test_a_fresh_router_knows_nothing() -> None:
    assert read("vllm_router_worker_health 1\n") == RouterReading(at_s=5.0, source="vllm-router")
