"""The doctor on a real Prometheus that scrapes the simulated tier."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from phasewise.doctor_prometheus import diagnose_prometheus
from serving.schema.tier import demo_tier_path, load_tier
from serving.types import Phase

if TYPE_CHECKING:
    from tests.real.conftest import Prometheus


def test_it_sees_every_replica_and_the_role_of_both_pools(prometheus: Prometheus) -> None:
    tier = load_tier(demo_tier_path())
    finished = "sum(vllm:request_success_total{{phase='{}'}}) > 100"
    for seen in (
        finished.format("prefill"),
        finished.format("decode"),
        "llm_d_epp_request_ttft_seconds_count",
    ):
        prometheus.wait_for(partial(prometheus.has_data, seen), seen)
    found = asyncio.run(diagnose_prometheus(prometheus.url, tier=tier))

    assert found.can_run, found.why
    replicas = [each for each in found.targets if each.is_replica]
    assert {each.target.pool for each in replicas} == {"prefill", "decode"}
    assert all(each.conformance and not each.conformance.findings for each in replicas)
    agreed = [check for check in found.checks if check.what.startswith("role of pool") and check.ok]
    assert len(agreed) == 2, found.checks
    routers = [each for each in found.targets if not each.is_replica]
    assert any("SLO ttftSeconds 2.5" in words for each in routers for words in each.advice)
    assert {each.phase for each in replicas} == {Phase.PREFILL, Phase.DECODE}
