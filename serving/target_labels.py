"""The labels that phasewise's own tiers give to their targets, in Prometheus's HTTP discovery.

One place for the simulated and the local tier, so that whoever reads the list needs to know only
one of them. Form: https://prometheus.io/docs/prometheus/latest/http_sd/.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from serving.start_labels import Stages, stages_text
from serving.types import Phase, ReplicaState, StartKind, StartStage

META = "__meta_phasewise_"
Group = dict[str, object]
"""One target with its labels, as JSON."""


def replica_group(
    address: str,
    *,
    tier: str,
    name: str,
    pool: str,
    phase: Phase,
    variant: str,
    state: ReplicaState,
    created_s: float | None,
    stage: StartStage | None = None,
    start_kind: StartKind | None = None,
    start_stages: Stages = (),
    next_start: StartKind | None = None,
) -> Group:
    """A replica's page at `address` (`host:port`); `created_s` is when it was asked for.

    `start_kind` and `start_stages` tell of its own start, `next_start` of its pool's next one.
    """
    labels = {
        f"{META}replica": name,
        f"{META}pool": pool,
        f"{META}phase": phase.value,
        f"{META}variant": variant,
        f"{META}state": state.value,
        "replica": name,
        "tier": tier,
        "pool": pool,
        "phase": phase.value,
        "job": "vllm",
    }
    if created_s is not None:
        labels[f"{META}created_s"] = repr(float(created_s))
    if stage is not None:
        labels[f"{META}stage"] = stage.value
    if start_kind is not None:
        labels[f"{META}start_kind"] = start_kind.value
    if start_stages:
        labels[f"{META}start_stages"] = stages_text(start_stages)
    if next_start is not None:
        labels[f"{META}next_start"] = next_start.value
    return {"targets": [address], "labels": labels}


def router_group(address: str, *, tier: str, dialect: str) -> Group:
    """The front end's page at `address`; `dialect` says how it is read."""
    return {
        "targets": [address],
        "labels": {f"{META}router": dialect, "tier": tier, "job": "router"},
    }
