"""A real Prometheus finds and scrapes the simulated tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.recorded import POOL_LABELS, RECORDED_BY_NAME

if TYPE_CHECKING:
    from tests.real.conftest import Prometheus


def test_it_finds_every_replica_with_its_tier_pool_and_phase(prometheus: Prometheus) -> None:
    expr = RECORDED_BY_NAME["phase:output_tokens:rate1m"].expr

    def found() -> set[tuple[str, ...]]:
        rows = [row["metric"] for row in prometheus.query(expr)]
        return {tuple(row.get(label, "") for label in POOL_LABELS) for row in rows}

    wanted = {("demo", "prefill", "prefill"), ("demo", "decode", "decode")}
    prometheus.wait_for(lambda: found() == wanted, "rates of both pools")

    assert prometheus.query('up{job="router", tier="demo"} == 1')
