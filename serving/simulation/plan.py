"""What a simulated tier consists of: pools of one model behind a router. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from serving.errors import Misconfigured
from serving.simulation.profile import EngineProfile
from serving.types import Phase

RouterPolicy = Literal["least_load", "round_robin", "power_of_two"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """One pool and the engine arguments of its replicas (vLLM's names and defaults).

    `start_s` is the whole start-up time, to which the profile's stages are scaled; `None` takes
    the profile's own. `min_replicas` and `max_replicas` bind whoever scales, not the simulator.
    `kv_capacity_tokens` overrides the profile's. A KV block holds `block_size_tokens`.
    """

    name: str
    phase: Phase
    variant: str
    profile: EngineProfile
    initial_replicas: int = 1
    min_replicas: int = 0
    max_replicas: int = 1000
    accelerators_per_replica: int = 1
    start_s: float | None = None
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    block_size_tokens: int = 16
    max_model_len: int = 32768
    kv_lease_s: float = 30.0
    kv_capacity_tokens: int | None = None

    def __post_init__(self) -> None:
        where = f"pool {self.name}"
        if self.initial_replicas < 0:
            raise _bad("initial_replicas", where, self.initial_replicas, "0 or more")
        if not 1 <= self.max_num_seqs <= self.max_num_batched_tokens:
            raise _bad(
                "every running request needs a token in each step: max_num_seqs",
                where,
                self.max_num_seqs,
                f"1 to max_num_batched_tokens ({self.max_num_batched_tokens})",
            )
        if self.block_size_tokens < 1:
            raise _bad("block_size_tokens", where, self.block_size_tokens, "1 or more")
        if self.kv_blocks * self.block_size_tokens < self.max_model_len:
            raise _bad(
                "the KV cache must hold one longest request: KV capacity in tokens",
                where,
                self.kv_blocks * self.block_size_tokens,
                f"at least max_model_len ({self.max_model_len})",
            )

    @property
    def kv_blocks(self) -> int:
        """How many whole KV blocks a replica has."""
        tokens = self.kv_capacity_tokens or self.profile.kv_capacity_tokens
        return tokens // self.block_size_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPlan:
    """A tier: either aggregated pools only, or at least one prefill and one decode pool."""

    name: str
    model: str
    pools: tuple[PoolPlan, ...]
    router_policy: RouterPolicy = "least_load"

    def __post_init__(self) -> None:
        names = [pool.name for pool in self.pools]
        if len(set(names)) != len(names):
            raise _bad("pool names must differ", f"tier {self.name}", names, "unique names")
        phases = {pool.phase for pool in self.pools}
        if phases not in ({Phase.BOTH}, {Phase.PREFILL, Phase.DECODE}):
            raise _bad(
                "these pools cannot serve together",
                f"tier {self.name}",
                sorted(phases),
                "prefill and decode pools, or pools of phase both only",
            )
        if self.router_policy not in get_args(RouterPolicy):
            raise _bad(
                "unknown router policy",
                f"tier {self.name}",
                self.router_policy,
                ", ".join(get_args(RouterPolicy)),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCounts:
    """How many replicas a pool has, by state. Draining ones are not part of `desired`."""

    desired: int
    ready: int
    starting: int
    draining: int


def _bad(what: str, where: str, found: object, expected: str) -> Misconfigured:
    return Misconfigured(what, where=where, found=repr(found), expected=expected)
