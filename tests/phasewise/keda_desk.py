"""What a test's server answers from, and what a refused call says."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from autoscaler.keda_answers import SeenPlan
from autoscaler.keda_server import Answers
from autoscaler.types import Decision, Plan, Reason
from serving.types import Phase, PoolId

POOLS = {"chat": ("prefill", "decode")}
PREFILL = PoolId(tier="chat", name="prefill", phase=Phase.PREFILL, variant="v")


def plan_of(replicas: int | None, *, pool: PoolId = PREFILL) -> Plan:
    decision = Decision(
        pool=pool, replicas=replicas, hold=False, reason=Reason.DEMAND_ROSE, words="more is asked"
    )
    return Plan(tier=pool.tier, epoch=1, at_s=0.0, policy="phasewise", decisions=(decision,))


class Desk:
    """What the server answers from; a test changes `plan` under its hands."""

    def __init__(self, replicas: int | None = 7) -> None:
        self.plan = SeenPlan(plan=plan_of(replicas), mode="act", age_s=1.0)

    def answers(self) -> Answers:
        return Answers(pools=POOLS, seen=lambda _: self.plan, look_every_s=0.01)


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""
