"""The recorded requests on a simulated pair, its pages taken at the recording's instants.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phasewise.reality.recording import About, RecordedPage, Recording
from serving.simulation.pages_vllm import VllmPage
from serving.simulation.pages_vllm_router import VllmRouterPage
from serving.simulation.plan import PoolPlan, TierPlan
from serving.simulation.profile import EngineProfile
from serving.simulation.telemetry import Histogram
from serving.simulation.tier import SimulatedReplica, SimulatedTier
from serving.types import Phase

SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Mean times of one run, in seconds; `None` where nothing was observed."""

    prefill_s: float | None
    gap_s: float | None
    transfer_s: float | None


def simulated_means(
    recording: Recording, profile: EngineProfile, *, block_size_tokens: int
) -> Means:
    """What `simulated_pages` would show at its end, without any page."""
    about = recording.about
    tier = SimulatedTier(_plan(about, profile, block_size_tokens), recording.trace, seed=SEED)
    tier.advance(max(page.at_s for page in recording.pages))
    numbers = {replica.phase: replica.telemetry for replica in tier.replicas()}
    prefill, decode = numbers[Phase.PREFILL], numbers[Phase.DECODE]
    assert prefill is not None
    assert decode is not None
    return Means(
        prefill_s=_mean(prefill.prefill_time),
        gap_s=_mean(decode.itl),
        transfer_s=_mean(decode.kv_transfer_time),
    )


def _mean(histogram: Histogram) -> float | None:
    return histogram.sum / histogram.count if histogram.count else None


def simulated_pages(
    recording: Recording, profile: EngineProfile, *, block_size_tokens: int
) -> tuple[RecordedPage, ...]:
    """One page for each of the recording, of the same target at the same time."""
    about = recording.about
    tier = SimulatedTier(_plan(about, profile, block_size_tokens), recording.trace, seed=SEED)
    replicas = {replica.phase.value: replica for replica in tier.replicas()}
    urls = {replica.name: about.urls[target] for target, replica in replicas.items()}
    pages = {
        target: _engine_page(replica, about, block_size_tokens)
        for target, replica in replicas.items()
    }
    router = VllmRouterPage(policy="round_robin", aggregated=False)
    taken: list[RecordedPage] = []
    for real in sorted(recording.pages, key=lambda page: page.at_s):
        tier.advance(max(0.0, real.at_s - tier.now_s))
        body = (
            router.render(tier.router, tier.replicas(), urls)
            if real.target == "router"
            else _body(pages, replicas, real.target)
        )
        taken.append(RecordedPage(at_s=real.at_s, target=real.target, text=body.decode()))
    return tuple(taken)


def _plan(about: About, profile: EngineProfile, block_size_tokens: int) -> TierPlan:
    pools = tuple(
        PoolPlan(
            name=phase.value,
            phase=phase,
            variant="cpu",
            profile=profile,
            max_num_batched_tokens=about.max_num_batched_tokens,
            max_num_seqs=about.max_num_seqs,
            max_model_len=about.max_model_len,
            block_size_tokens=block_size_tokens,
        )
        for phase in (Phase.PREFILL, Phase.DECODE)
    )
    return TierPlan(name="pair", model=about.model, pools=pools, router_policy="round_robin")


def _engine_page(replica: SimulatedReplica, about: About, block_size_tokens: int) -> VllmPage:
    assert replica.telemetry is not None
    return VllmPage(
        replica.telemetry,
        model=about.model,
        phase=replica.phase,
        kv_capacity_tokens=replica.kv_capacity_tokens,
        block_size_tokens=block_size_tokens,
        max_model_len=about.max_model_len,
    )


def _body(
    pages: Mapping[str, VllmPage], replicas: Mapping[str, SimulatedReplica], target: str
) -> bytes:
    telemetry = replicas[target].telemetry
    assert telemetry is not None
    return pages[target].render(telemetry)
