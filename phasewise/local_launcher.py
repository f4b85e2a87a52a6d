"""How a tier document's pools are started on this machine, in the supervisor's words.

Makes the models and fetches the weights; starts no engine.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from phasewise.local_down import NEAR_WEIGHTS, remove_near_weights
from phasewise.local_request import UpRequest
from serving.local.environment import EngineEnvironment
from serving.local.launch import (
    ReplicaLaunch,
    RouterLaunch,
    engine_launch,
    local_engine,
    router_launch,
)
from serving.local.replica import PoolSetup
from serving.local.weights import ensure_model, fetch_weights
from serving.schema.tier import Pool, Tier
from serving.types import Phase, StartKind

MODELS = Path(".cache/models")


class VllmLauncher:
    """How the engines of a tier are started from the engine environment.

    Where the tier says how fast weights come, they are copied at that rate before the first start,
    and are on this machine from then on, until the tier is down.
    """

    def __init__(self, tier: Tier, asked: UpRequest, env: EngineEnvironment) -> None:
        self._tier, self._asked, self._env = tier, asked, env
        self._pools = {pool.name: pool for pool in tier.spec.pools}
        self._cache = asked.folder / NEAR_WEIGHTS
        self._turn = asyncio.Lock()
        self._models: dict[str, Path] = {}

    async def make_models(self) -> None:
        """The generated models of all variants, before anything starts."""
        remove_near_weights(self._asked.folder)
        for pool in self._pools.values():
            model = local_engine(self._tier.variant_of(pool)).model
            self._models[pool.name] = await asyncio.to_thread(
                ensure_model, self._env, model, MODELS
            )

    async def weights(self, pool: str) -> bool | None:
        """Copy the weights near, if they are not; true for all who had to wait for that."""
        rate = self._rate(pool)
        if rate is None:
            return None
        into = self._near(pool)
        if into.exists():
            return False
        async with self._turn:
            await asyncio.to_thread(fetch_weights, self._models[pool], into, rate)
        return True

    def next_start(self, pool: str) -> StartKind | None:
        """Cold until the weights are near; unknown where they come at once."""
        if self._rate(pool) is None:
            return None
        return StartKind.WARM if self._near(pool).exists() else StartKind.COLD

    def engine(
        self, pool: str, *, name: str, http_port: int, side_channel_port: int, metrics_port: int
    ) -> ReplicaLaunch:
        """The command line of one engine."""
        return engine_launch(
            self._tier,
            self._pools[pool],
            name=name,
            env_dir=self._env.root,
            model_dir=(self._models[pool] if self._rate(pool) is None else self._near(pool)),
            http_port=http_port,
            side_channel_port=side_channel_port,
            nixl_metrics_port=metrics_port,
            otlp_endpoint=self._asked.otlp_endpoint,
            ucx_tls=self._asked.ucx_tls,
        )

    def router(
        self, *, http_port: int, metrics_port: int, discovery_port: int
    ) -> RouterLaunch | None:
        """The router's command line; a tier of aggregated pools has none."""
        if all(pool.phase is Phase.BOTH for pool in self._pools.values()):
            return None
        return router_launch(
            self._tier,
            env_dir=self._env.root,
            http_port=http_port,
            metrics_port=metrics_port,
            discovery_port=discovery_port,
        )

    def _rate(self, pool: str) -> float | None:
        return local_engine(self._tier.variant_of(self._pools[pool])).weights_bytes_per_second

    def _near(self, pool: str) -> Path:
        return (self._cache / self._models[pool].name).absolute()


def pool_setup(tier: Tier, pool: Pool) -> PoolSetup:
    """A pool of the document in the supervisor's words."""
    variant = tier.variant_of(pool)
    local = local_engine(variant)
    first = pool.replicas.min if pool.replicas.initial is None else pool.replicas.initial
    return PoolSetup(
        name=pool.name,
        phase=pool.phase,
        variant=variant.name,
        initial=first,
        most=pool.replicas.max,
        may_flip=local.role_flip,
        cpu_cores=local.cpu_cores,
        kv_lease_s=variant.engine.kv_lease_seconds,
    )
