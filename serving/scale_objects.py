"""The scale subresource of a tier's pools, as a Kubernetes API server would answer.

Bodies are `autoscaling/v1` Scale objects; refusals are `v1` Status objects. Knows nothing of HTTP
or of what a pool is made of: takes and gives plain JSON values. A pool's resource version grows
whenever its desired or observed number of replicas has changed.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

Json = dict[str, object]
NAMESPACE = "default"
SCALE_PATH = f"/apis/phasewise.dev/v1alpha1/namespaces/{NAMESPACE}/pools/{{pool}}/scale"
"""Where the object of a pool is, in the notation of aiohttp's routes."""


class PoolCounts(Protocol):
    """How many replicas a pool should have, and has."""

    @property
    def desired(self) -> int:
        """What was asked for."""

    @property
    def ready(self) -> int:
        """Those that serve."""

    @property
    def starting(self) -> int:
        """Those that will."""


class ScalableTier(Protocol):
    """What a tier can do for its scale objects."""

    def pool_counts(self, name: str) -> PoolCounts:
        """The counts of one pool now."""

    def scale(self, name: str, replicas: int) -> None:
        """Set what a pool should have."""


class ScaleTargets:
    """One scale object for each pool of the tier."""

    def __init__(self, tier: ScalableTier, pools: Iterable[str]) -> None:
        self._tier = tier
        self._pools = frozenset(pools)
        self._versions: dict[str, int] = {}
        self._seen: dict[str, tuple[int, int]] = {}

    def get(self, pool: str) -> tuple[int, Json]:
        """Status code and the pool's scale."""
        if pool not in self._pools:
            return _refusal(404, "NotFound", f'pools.phasewise.dev "{pool}" not found')
        return 200, self._scale(pool)

    def replace(self, pool: str, body: object) -> tuple[int, Json]:
        """Set the desired number of replicas: 409 if the body names an older resource version.

        A body that names none is applied unconditionally, and may leave out everything but
        `spec.replicas`, so that a merge patch is treated the same.
        """
        if pool not in self._pools:
            return _refusal(404, "NotFound", f'pools.phasewise.dev "{pool}" not found')
        metadata, spec = _part(body, "metadata"), _part(body, "spec")
        if metadata is None or spec is None:
            return _refusal(400, "BadRequest", "the body is not a Scale object")
        version = metadata.get("resourceVersion")
        if version not in (None, "", str(self._version(pool))):
            return _refusal(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on pools.phasewise.dev "{pool}": the object has '
                "been modified; please apply your changes to the latest version and try again",
            )
        replicas = spec.get("replicas")
        if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
            return _refusal(
                422,
                "Invalid",
                f'Scale "{pool}" is invalid: spec.replicas: found {replicas!r}, expected a whole '
                "number of at least 0",
            )
        self._tier.scale(pool, replicas)
        return 200, self._scale(pool)

    def note(self) -> None:
        """Look at every pool, so that each change of a pool is one version."""
        for pool in self._pools:
            self._version(pool)

    def _version(self, pool: str) -> int:
        counts = self._tier.pool_counts(pool)
        now = (counts.desired, counts.ready + counts.starting)
        if self._seen.get(pool) != now:
            self._seen[pool] = now
            self._versions[pool] = self._versions.get(pool, 0) + 1
        return self._versions[pool]

    def _scale(self, pool: str) -> Json:
        """Observed replicas leave out draining ones, as Kubernetes leaves out terminating pods."""
        version = self._version(pool)
        desired, observed = self._seen[pool]
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": pool, "namespace": NAMESPACE, "resourceVersion": str(version)},
            "spec": {"replicas": desired},
            "status": {"replicas": observed, "selector": f"pool={pool}"},
        }


def _part(body: object, name: str) -> dict[str, object] | None:
    """A nested object of the body; empty if absent, `None` if it is something else."""
    if not isinstance(body, dict):
        return None
    part = body.get(name, {})
    return part if isinstance(part, dict) else None


def _refusal(code: int, reason: str, message: str) -> tuple[int, Json]:
    return code, {
        **{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"},
        **{"message": message, "reason": reason, "code": code},
    }
