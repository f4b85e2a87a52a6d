"""Who else scales a tier's pools, as far as series in a Prometheus show it.

Kubernetes' HPA by kube-state-metrics, KEDA by its operator, llm-d's autoscaler and Dynamo's planner
by their own series. Two that scale one target pull it to and fro.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from phasewise.doctor_targets import Check
from phasewise.prometheus_api import Sample
from serving.schema.tier import Tier

_HPA = "kube_horizontalpodautoscaler_info"
_KEDA = "keda_scaler_active"
_LLM_D = "wva_desired_replicas"
_DYNAMO = "dynamo_planner_num_prefill_replicas"
_MADE_BY_KEDA = "keda-hpa-"
QUERIES = (
    _HPA,
    f"count by (__name__, namespace, exported_namespace, scaledObject) ({_KEDA})",
    _LLM_D,
    _DYNAMO,
)
"""What to ask a Prometheus for."""

Place = tuple[str | None, str | None, str]
"""Namespace and kind (`None` where nobody says) and name of a scale target."""


def other_autoscalers(
    series: Iterable[Sample], *, tier: Tier | None, targets: Sequence[Mapping[str, str]]
) -> list[Check]:
    """A check for each autoscaler that is on a scale target of this tier, or may be.

    Without scale targets in a tier document, a target whose name is a pool's or begins a pod's
    counts as one of ours.
    """
    ours = _scale_targets(tier)
    found: list[str] = []
    for sample in series:
        labels = sample.labels
        namespace = labels.get("exported_namespace") or labels.get("namespace")
        if "horizontalpodautoscaler" in labels:
            kind, name = labels.get("scaletargetref_kind"), labels.get("scaletargetref_name", "")
            if _is_ours((namespace, kind, name), ours, targets):
                found.append(_hpa_words(labels["horizontalpodautoscaler"], namespace, kind, name))
        elif "scaledObject" in labels:
            name = labels["scaledObject"]
            if _is_ours((namespace, None, name), ours, targets):
                found.append(
                    f"KEDA's ScaledObject {namespace}/{name} is named like a pool: right if "
                    "phasewise is its only trigger, else both decide"
                )
        elif "variant_name" in labels:
            name = labels["variant_name"]
            if _is_ours((namespace, None, name), ours, targets):
                found.append(f"llm-d's autoscaler wants {sample.value:g} replicas of {name}")
        elif sample.name == _DYNAMO:
            found.append("Dynamo's planner sizes prefill and decode here")
    return [Check(what="another autoscaler", ok=False, words=w) for w in dict.fromkeys(found)]


def _hpa_words(hpa: str, namespace: str | None, kind: str | None, name: str) -> str:
    words = f"HPA {namespace}/{hpa} scales {kind} {name} too"
    if hpa.startswith(_MADE_BY_KEDA):
        return f"{words} (made by KEDA: right if phasewise is its only trigger, else both decide)"
    return f"{words}: delete it, or leave phasewise in mode advise"


def _scale_targets(tier: Tier | None) -> tuple[Place, ...]:
    if tier is None:
        return ()
    return tuple(
        (target.namespace or tier.metadata.namespace, target.kind, target.name)
        for pool in tier.spec.pools
        if (target := pool.scale_target) is not None
    )


def _is_ours(place: Place, ours: Sequence[Place], targets: Sequence[Mapping[str, str]]) -> bool:
    namespace, kind, name = place
    if ours:
        return any(name == n and kind in (None, k) and namespace in (None, ns) for ns, k, n in ours)
    return bool(name) and any(
        namespace in (None, labels.get("namespace", namespace))
        and (name == labels.get("pool") or labels.get("pod", "").startswith(f"{name}-"))
        for labels in targets
    )
