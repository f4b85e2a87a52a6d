"""The Kubernetes objects that let KEDA scale a tier's pools to the published plan. No I/O.

They add nothing of their own: no tolerance, no stabilisation, no cooldown, and room for a whole
plan in one step. When phasewise gives no number, the pool stays as it is.
"""

from __future__ import annotations

import hashlib
from typing import Any

from autoscaler.keda_answers import POOL_KEY, TIER_KEY
from serving.errors import Misconfigured
from serving.schema.tier import Pool, ScaleTarget, Tier

SECRET = "phasewise-keda"
POLLING_S = 15
_POLICY_PERIOD_S = 15
_UP_PERCENT = 900  # tenfold
_DOWN_PERCENT = 100
_LONGEST_NAME = 54  # KEDA labels its HPA keda-hpa-NAME, and a label holds 63 characters
_API_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
}


def target_of(pool: Pool) -> ScaleTarget:
    """What holds the pool: what the tier says, else a Deployment that is called like the pool."""
    return pool.scale_target or ScaleTarget(kind="Deployment", name=pool.name)


def namespace_of(tier: Tier, pool: Pool) -> str:
    """Where the pool's objects live: KEDA scales only within a namespace."""
    return target_of(pool).namespace or tier.metadata.namespace


def object_name(tier: Tier, pool: Pool) -> str:
    """The name of a pool's ScaledObject; a long one is cut and told apart by a hash."""
    name = f"{tier.name}-{pool.name}"
    if len(name) <= _LONGEST_NAME:
        return name
    mark = hashlib.sha256(f"{tier.name}/{pool.name}".encode()).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - len(mark) - 1].rstrip('-.')}-{mark}"


def scaled_object(tier: Tier, pool: Pool, *, address: str, tls: bool) -> dict[str, Any]:
    """The ScaledObject of a pool. Raises Misconfigured for a target whose API is not known."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": object_name(tier, pool), "namespace": namespace_of(tier, pool)},
        "spec": {
            "scaleTargetRef": _target_reference(tier, pool),
            "pollingInterval": POLLING_S,
            "cooldownPeriod": 0,
            "minReplicaCount": pool.replicas.min,
            "maxReplicaCount": pool.replicas.max,
            "fallback": {
                "failureThreshold": 3,
                "behavior": "currentReplicas",
                # Never 0: with it KEDA takes an error for "not active", and scales to zero.
                "replicas": max(1, pool.replicas.min),
            },
            "advanced": {
                "horizontalPodAutoscalerConfig": {
                    "behavior": {
                        "scaleUp": _at_once(pool, percent=_UP_PERCENT),
                        "scaleDown": _at_once(pool, percent=_DOWN_PERCENT),
                    }
                }
            },
            "triggers": [_trigger(tier, pool, address=address, tls=tls)],
        },
    }


def trigger_authentication(namespace: str) -> dict[str, Any]:
    """Which keys of the secret KEDA takes its certificates from, in one namespace."""
    keys = {"caCert": "ca.crt", "tlsClientCert": "tls.crt", "tlsClientKey": "tls.key"}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": {"name": SECRET, "namespace": namespace},
        "spec": {
            "secretTargetRef": [
                {"parameter": parameter, "name": SECRET, "key": key}
                for parameter, key in keys.items()
            ]
        },
    }


def _target_reference(tier: Tier, pool: Pool) -> dict[str, str]:
    target = target_of(pool)
    if target.kind not in _API_VERSIONS:
        raise Misconfigured(
            "KEDA needs to know the API of the target",
            where=f"tier {tier.name}, pool {pool.name}, scaleTarget.kind",
            found=repr(target.kind),
            expected=", ".join(_API_VERSIONS),
        )
    return {
        "apiVersion": _API_VERSIONS[target.kind],
        "kind": target.kind,
        "name": target.name,
    }


def _at_once(pool: Pool, *, percent: int) -> dict[str, Any]:
    """A behaviour that lets any plan of the pool through in one step."""
    return {
        "tolerance": "0",
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Percent", "value": percent, "periodSeconds": _POLICY_PERIOD_S},
            {"type": "Pods", "value": pool.replicas.max, "periodSeconds": _POLICY_PERIOD_S},
        ],
    }


def _trigger(tier: Tier, pool: Pool, *, address: str, tls: bool) -> dict[str, Any]:
    metadata = {"scalerAddress": address, TIER_KEY: tier.name, POOL_KEY: pool.name}
    trigger: dict[str, Any] = {
        "type": "external",
        "metricType": "AverageValue",
        "metadata": metadata | ({"enableTLS": "true"} if tls else {}),
    }
    return trigger | ({"authenticationRef": {"name": SECRET}} if tls else {})
