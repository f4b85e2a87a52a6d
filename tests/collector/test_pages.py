"""From fetched bytes to readings: each page in its own dialect, problems in words."""

from __future__ import annotations

from pathlib import Path

from collector.discovery import RouterTarget
from collector.pages import read_replicas, read_router
from serving.errors import Unavailable
from serving.types import Phase

FIXTURES = Path(__file__).parents[1] / "fixtures"
DECODE = (FIXTURES / "vllm-0.32" / "decode.prom").read_bytes()
EPP = (FIXTURES / "llm-d-router" / "llm_d_request_total_metric.txt").read_bytes().strip() + b"\n"
VLLM_ROUTER = (FIXTURES / "vllm-router-0.1.17" / "router.prom").read_bytes()


def router(name: str, dialect: str) -> RouterTarget:
    return RouterTarget(name=name, url="http://127.0.0.1/metrics", dialect=dialect)


def test_readable_pages_become_readings_and_the_others_problems() -> None:
    bodies = {
        "good": DECODE,
        "cut": DECODE[:30_000],
        "refused": Unavailable("cannot connect"),
        "html": b"<html></html>\n",
        "router": EPP,
    }
    phases = dict.fromkeys(("good", "cut", "refused", "html", "not-fetched"), Phase.DECODE)
    readings, problems = read_replicas(bodies, phases=phases, at_s=7.0)

    assert list(readings) == ["good"]
    assert readings["good"].at_s == 7.0
    assert readings["good"].output_tokens == 4_832.0
    assert set(problems) == {"cut", "refused", "html"}
    assert problems["refused"] == "cannot connect"
    assert "cut off" in problems["cut"]


def test_a_router_is_read_in_its_dialect() -> None:
    epp, _ = read_router({"router": EPP}, routers=[router("router", "epp")], at_s=7.0)
    other, _ = read_router(
        {"router": VLLM_ROUTER}, routers=[router("router", "vllm-router")], at_s=7.0
    )

    assert epp is not None
    assert (epp.source, epp.requests) == ("epp", 4.0)
    assert other is not None
    assert (other.source, other.requests) == ("vllm-router", 101.0)


def test_a_router_that_cannot_be_read_says_why() -> None:
    gone = {"router": Unavailable("cannot connect")}
    reading, problem = read_router(gone, routers=[router("router", "epp")], at_s=7.0)
    unknown, odd = read_router({"router": EPP}, routers=[router("router", "envoy")], at_s=7.0)

    assert (reading, problem) == (None, "cannot connect")
    assert (unknown, odd) == (None, "router: no dialect is called 'envoy'")


def test_a_tier_without_a_router_has_no_problem() -> None:
    assert read_router({}, routers=[], at_s=7.0) == (None, None)
