"""A reading taken straight from the simulator is what reading its page back gives, to the bit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collector.exposition import read_page
from serving.dialects import epp, vllm, vllm_router
from serving.simulation.faults import Fault, FaultKind
from serving.simulation.pages_epp import EppPage
from serving.simulation.pages_vllm import VllmPage
from serving.simulation.pages_vllm_router import VllmRouterPage
from serving.simulation.profile import load_profile
from serving.simulation.readings import RouterSource, reading_of, router_reading_of
from serving.simulation.replica import SimulatedReplica
from serving.simulation.seen import SeenTelemetry
from serving.simulation.tier import PoolPlan, SimulatedTier, TierPlan
from serving.simulation.traffic import Request
from serving.types import Phase, ReplicaReading, RouterReading

PROFILE = load_profile("llama-3.1-8b-l40s")
KV_TOKENS = 40_960


def tier(
    *phases: Phase, requests: int = 400, kv_tokens: int = KV_TOKENS, start_s: float = 1.7e9
) -> SimulatedTier:
    pools = tuple(
        PoolPlan(
            name=phase.value,
            phase=phase,
            variant="l40s",
            profile=PROFILE,
            initial_replicas=2,
            start_s=20.0,
            kv_capacity_tokens=kv_tokens,
            max_model_len=8192,
            kv_lease_s=3.0,
        )
        for phase in phases
    )
    plan = TierPlan(name="tier", model="llama", pools=pools)
    traffic = [Request(i / 10, 200 + 37 * (i % 50), 5 + i % 90) for i in range(requests)]
    return SimulatedTier(plan, traffic, seed=3, start_s=start_s)


def disaggregated(kv_tokens: int = KV_TOKENS) -> SimulatedTier:
    return tier(Phase.PREFILL, Phase.DECODE, kv_tokens=kv_tokens)


def read_back(
    replica: SimulatedReplica, at_s: float, *, seen: SeenTelemetry
) -> ReplicaReading | None:
    telemetry = seen.of(replica)
    if telemetry is None:
        return None
    page = VllmPage(
        telemetry,
        model="llama",
        phase=replica.phase,
        kv_capacity_tokens=replica.kv_capacity_tokens,
        block_size_tokens=replica.plan.block_size_tokens,
        max_model_len=replica.plan.max_model_len,
    )
    read = read_page(page.render(telemetry), vllm.WANTED)
    assert not read.problems
    return vllm.replica_reading(read, replica=replica.name, at_s=at_s, phase=replica.phase)


def router_read_back(simulated: SimulatedTier, source: RouterSource) -> RouterReading:
    router, replicas, at_s = simulated.router, simulated.replicas(), simulated.now_s
    if source == "epp":
        body = EppPage(model="llama", inference_pool="tier").render(router, replicas)
        read = read_page(body, epp.WANTED) if body else None
        assert read is not None
        return epp.router_reading(read, at_s=at_s, model="llama")
    aggregated = simulated.plan.pools[0].phase is Phase.BOTH
    page = VllmRouterPage(policy="round_robin", aggregated=aggregated)
    return vllm_router.router_reading(
        read_page(page.render(router, replicas, {}), vllm_router.WANTED), at_s=at_s
    )


def steps(
    simulated: SimulatedTier, seen: SeenTelemetry, *, count: int = 14, seconds: float = 5.0
) -> Iterator[float]:
    """Play on; each yield is an instant at which pages may be looked at."""
    for _ in range(count):
        seen.note(simulated.replicas(), simulated.now_s)
        simulated.advance(seconds)
        seen.note(simulated.replicas(), simulated.now_s)
        yield simulated.now_s


@pytest.mark.parametrize("phases", [(Phase.PREFILL, Phase.DECODE), (Phase.BOTH,)])
def test_every_reading_equals_its_page_at_every_step(phases: tuple[Phase, ...]) -> None:
    simulated, seen = tier(*phases), SeenTelemetry()
    finished = 0.0
    for at_s in steps(simulated, seen):
        for replica in simulated.replicas():
            reading = reading_of(replica, at_s, seen=seen)
            assert reading == read_back(replica, at_s, seen=seen)
            assert reading is not None
            finished += reading.finished_requests or 0.0

    assert finished > 0.0


def test_a_failed_pull_s_negative_sums_survive() -> None:
    # so little KV that requests wait on decode while their prompts are pinned on prefill
    simulated, seen = disaggregated(kv_tokens=8192), SeenTelemetry()
    lowest_s = 0.0
    for step, at_s in enumerate(steps(simulated, seen)):
        if step in (2, 4, 6):
            simulated.inject(Fault(kind=FaultKind.KILL, pool="prefill"))
        for replica in simulated.replicas():
            reading = reading_of(replica, at_s, seen=seen)
            assert reading == read_back(replica, at_s, seen=seen)
            if reading is not None and reading.queue_time is not None:
                lowest_s = min(lowest_s, reading.queue_time.sum)

    assert lowest_s < -900_000.0


def test_a_starting_replica_has_no_reading() -> None:
    simulated = disaggregated()
    simulated.scale("decode", 3)
    simulated.advance(1.0)
    newest = simulated.replicas()[-1]

    assert reading_of(newest, simulated.now_s) is None


@pytest.mark.parametrize("kind", [FaultKind.FROZEN_PAGE, FaultKind.LATE_PAGE])
def test_a_broken_page_and_its_reading_agree(kind: FaultKind) -> None:
    simulated, seen = disaggregated(), SeenTelemetry()
    for step, at_s in enumerate(steps(simulated, seen)):
        if step == 3:
            simulated.inject(Fault(kind=kind, pool="decode", seconds=12.0))
            seen.note(simulated.replicas(), at_s)
        for replica in simulated.replicas():
            assert reading_of(replica, at_s, seen=seen) == read_back(replica, at_s, seen=seen)


def tokens(simulated: SimulatedTier, seen: SeenTelemetry) -> list[float | None]:
    readings = [reading_of(r, simulated.now_s, seen=seen) for r in simulated.replicas()]
    return [None if reading is None else reading.output_tokens for reading in readings]


def test_a_frozen_page_stays_as_it_was_when_the_fault_began_and_thaws() -> None:
    simulated, seen = disaggregated(), SeenTelemetry()
    history = []
    for step, at_s in enumerate(steps(simulated, seen)):
        if step == 4:
            simulated.inject(Fault(kind=FaultKind.FROZEN_PAGE, pool="decode"))
        if step == 8:
            simulated.inject(Fault(kind=FaultKind.CLEAR, pool="decode"))
        seen.note(simulated.replicas(), at_s)
        history.append(tokens(simulated, seen)[2:])

    assert history[4] == history[5] == history[6] == history[7]
    assert history[3] != history[4]
    assert history[8] != history[7]


def test_a_late_page_is_that_of_so_many_virtual_seconds_ago() -> None:
    simulated, seen = disaggregated(), SeenTelemetry()
    on_time = disaggregated()
    truth = [tokens(on_time, SeenTelemetry())]
    for _ in range(10):
        on_time.advance(5.0)
        truth.append(tokens(on_time, SeenTelemetry()))
    simulated.inject(Fault(kind=FaultKind.LATE_PAGE, pool="decode", seconds=15.0))
    shown = [tokens(simulated, seen)[2:] for _ in steps(simulated, seen, count=10)]

    assert shown[2:] == [row[2:] for row in truth[: len(shown) - 2]]  # 3 steps of 5 s behind
    assert shown[:2] == [truth[0][2:]] * 2  # nothing older is remembered


def test_a_missing_page_has_no_reading_with_or_without_memory() -> None:
    simulated, seen = disaggregated(), SeenTelemetry()
    simulated.inject(Fault(kind=FaultKind.MISSING_PAGE, pool="prefill", replicas="every_second"))
    seen.note(simulated.replicas(), simulated.now_s)
    with_memory = [reading_of(replica, 0.0, seen=seen) is None for replica in simulated.replicas()]

    assert with_memory == [False, True, False, False]
    assert [reading_of(r, 0.0) is None for r in simulated.replicas()] == with_memory


def test_a_late_page_cannot_be_read_without_memory() -> None:
    simulated = disaggregated()
    simulated.inject(Fault(kind=FaultKind.LATE_PAGE, pool="prefill"))

    with pytest.raises(ValueError, match="needs `seen`"):
        reading_of(simulated.replicas()[0], 0.0)


def test_the_memory_forgets_replicas_that_are_gone_and_what_is_old() -> None:
    simulated, seen = disaggregated(), SeenTelemetry(keep_s=10.0)
    for step, _ in enumerate(steps(simulated, seen, count=12)):
        if step == 3:
            simulated.scale("decode", 1)

    remembered = seen.remembered_s()
    assert remembered.keys() == {replica.name for replica in simulated.replicas()}
    assert all(len(times) <= 3 for times in remembered.values())  # 10 s in steps of 5 s


@pytest.mark.parametrize("source", ["epp", "vllm-router"])
@pytest.mark.parametrize("phases", [(Phase.PREFILL, Phase.DECODE), (Phase.BOTH,)])
def test_every_router_reading_equals_its_page(
    source: RouterSource, phases: tuple[Phase, ...]
) -> None:
    simulated, seen = tier(*phases), SeenTelemetry()
    aggregated = phases == (Phase.BOTH,)
    failed = None
    for step, at_s in enumerate(steps(simulated, seen)):
        if step == 3:
            for phase in phases:
                simulated.inject(
                    Fault(kind=FaultKind.KILL, pool=phase.value, replicas="every_second")
                )
        reading = router_reading_of(simulated.router, at_s, source=source, aggregated=aggregated)
        assert reading == router_read_back(simulated, source)
        failed = reading.failed_requests

    assert failed


@pytest.mark.parametrize("source", ["epp", "vllm-router"])
@pytest.mark.parametrize("phases", [(Phase.PREFILL, Phase.DECODE), (Phase.BOTH,)])
def test_a_router_that_has_seen_nothing_knows_nothing(
    source: RouterSource, phases: tuple[Phase, ...]
) -> None:
    simulated = tier(*phases)
    reading = router_reading_of(
        simulated.router, simulated.now_s, source=source, aggregated=len(phases) == 1
    )

    assert reading == router_read_back(simulated, source)
    assert reading.requests is None
    assert reading.failed_requests is None
