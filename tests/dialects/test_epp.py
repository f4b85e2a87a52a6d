"""llm-d's endpoint picker in our words, over its generations of names."""

from __future__ import annotations

from pathlib import Path

from collector.exposition import read_page
from serving.dialects import epp
from serving.types import RouterReading

FIXTURES = Path(__file__).parents[1] / "fixtures" / "llm-d-router"


def captured(name: str) -> str:
    return (FIXTURES / f"{name}.txt").read_text().strip() + "\n"


def read(text: str, model: str | None = None) -> RouterReading:
    return epp.router_reading(read_page(text.encode(), epp.WANTED), at_s=5.0, model=model)


def test_tenants_and_models_are_summed_unless_one_model_is_asked_for() -> None:
    text = captured("llm_d_request_total_metric") + captured("llm_d_request_error_total_metric")

    assert read(text).requests == 4.0
    assert read(text, "m10").requests == 3.0
    assert read(text, "t20").requests == 1.0  # a target model's name will do
    assert read(text).failed_requests == 4.0
    assert read(text, "m20").failed_requests == 1.0
    assert read(text, "other").requests is None


def test_old_and_new_names_side_by_side_count_once() -> None:
    new = captured("llm_d_request_total_metric")
    old = new.replace("llm_d_epp_", "inference_objective_")

    assert read(new + old).requests == 4.0
    assert read(old).requests == 4.0


def test_a_broken_new_name_is_not_replaced_by_the_old_one() -> None:
    new = captured("llm_d_request_total_metric")
    old = new.replace("llm_d_epp_", "inference_objective_")

    assert read(new.replace("} 2", "} two") + old).requests is None


def test_infinity_may_be_spelled_without_its_sign() -> None:
    text = captured("llm_d_request_ttft_seconds_metric")
    assert 'le="Inf"' in text
    ttft = read(text).ttft

    assert ttft is not None
    assert ttft.count == 4.0  # 2 + 1 + 1
    assert ttft.sum == 1.79  # 1.61 + 0.06 + 0.12
    assert ttft.bounds[:3] == (0.005, 0.025, 0.05)
    assert len(ttft.bounds) == 35


def test_ttft_of_requests_that_are_not_streamed_is_left_out() -> None:
    lines = [
        f'llm_d_epp_request_ttft_seconds_{part}{{streaming="{streaming}"{le}}} {value}\n'
        for streaming, value in (("true", 2), ("false", 50))
        for part, le in (
            ("bucket", ',le="1"'),
            ("bucket", ',le="+Inf"'),
            ("sum", ""),
            ("count", ""),
        )
    ]
    ttft = read("".join(lines)).ttft

    assert ttft is not None
    assert ttft.count == 2.0


def test_what_has_not_happened_yet_is_unknown() -> None:
    reading = read(captured("kv_cache_avg_metrics"))

    assert reading == RouterReading(at_s=5.0, source="epp")


def test_running_requests_are_read_under_their_new_name() -> None:
    assert read(captured("llm_d_running_requests_metrics")).running_requests == 2.0
