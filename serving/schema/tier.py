"""The tier document, `apiVersion: phasewise.dev/v1alpha1`, `kind: Tier`: what a tier is made of.

It says what is wanted and what is there, never how to size it. In the file keys are camelCase
with their units spelled out (`ttftSeconds`); in Python the same words in snake_case.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from serving.schema.document import load_document
from serving.schema.local_engine import LocalEngine
from serving.schema.node import Node, problem
from serving.types import Phase, PoolId, Slo

MAX_REPLICAS = 10_000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LONGEST_TTFT_SECONDS = 600.0
_LONGEST_ITL_SECONDS = 10.0


def _check_name(name: str) -> str:
    if len(name) > 63 or not _NAME.fullmatch(name):
        raise problem(
            "not a name",
            found=repr(name) if len(name) <= 63 else f"a text of {len(name)} characters",
            expected="at most 63 lower-case letters, digits, dots and dashes",
        )
    return name


Name = Annotated[str, Field(strict=True), AfterValidator(_check_name)]
Text = Annotated[str, Field(strict=True, min_length=1, max_length=253)]
# upper limits keep sums finite and slips of the unit out; none is near a real tier
Price = Annotated[float, Field(strict=True, ge=0, le=1_000_000)]
StepSeconds = Annotated[float, Field(strict=True, ge=0, le=60)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=86_400)]
Target = Annotated[float, Field(strict=True, gt=0)]  # its limit is checked with the units
Rate = Annotated[float, Field(strict=True, gt=0, le=1e15)]
Count = Annotated[int, Field(strict=True, ge=1, le=2**53)]
ReplicaCount = Annotated[int, Field(strict=True, ge=0, le=MAX_REPLICAS)]
RouterPolicy = Literal["least_load", "round_robin", "power_of_two"]
RouterKind = Literal["epp", "vllm-router", "none"]


class Metadata(Node):
    """How the tier is called."""

    name: Name = Field(description="name of the tier, unique in its namespace")
    namespace: Name = Field(default="default", description="namespace of the tier")


class SloSpec(Node):
    """The latency targets. A request is good if it meets both."""

    ttft_seconds: Target = Field(
        description="longest time to first token, from arrival at the front end, in seconds"
    )
    itl_seconds: Target = Field(
        description="longest mean gap between two output tokens of a request, in seconds"
    )
    attainment_ratio: Annotated[float, Field(strict=True, gt=0, lt=1)] = Field(
        default=0.99, description="share of requests that must meet both targets, 0-1"
    )

    @model_validator(mode="after")
    def _check_units(self) -> SloSpec:
        for key, value, longest in (
            ("ttftSeconds", self.ttft_seconds, _LONGEST_TTFT_SECONDS),
            ("itlSeconds", self.itl_seconds, _LONGEST_ITL_SECONDS),
        ):
            if value > longest:
                raise problem(
                    "looks like milliseconds",
                    where=key,
                    found=f"{value:g}",
                    expected=f"seconds, at most {longest:g}",
                )
        return self


class Engine(Node):
    """The arguments that the engine of a variant was started with; vLLM's names and defaults."""

    max_num_batched_tokens: Count = Field(
        default=8192, description="most tokens that one engine step computes"
    )
    max_num_seqs: Count = Field(
        default=256, description="most requests that run at once on a replica"
    )
    block_size_tokens: Count = Field(default=16, description="size of a KV cache block, in tokens")
    max_model_len_tokens: Count = Field(
        default=32768, description="longest prompt and answer together, in tokens"
    )
    kv_lease_seconds: Seconds = Field(
        default=30.0, description="how long prefill keeps KV that decode has not pulled, in seconds"
    )
    kv_capacity_tokens: Count | None = Field(
        default=None,
        description="KV cache of a replica, in tokens; read from its page where absent",
    )


class CapacityPrior(Node):
    """What a replica can do, where it is known beforehand; it is learned anyway."""

    prefill_tokens_per_second: Rate | None = Field(
        default=None,
        description="uncached prompt tokens that one replica prefills, in tokens per second",
    )
    decode_base_seconds: StepSeconds | None = Field(
        default=None, description="constant part of a decode step, in seconds"
    )
    decode_seconds_per_sequence: StepSeconds | None = Field(
        default=None, description="what each running request adds to a decode step, in seconds"
    )
    decode_seconds_per_kv_token: StepSeconds | None = Field(
        default=None, description="what each resident KV token adds to a decode step, in seconds"
    )


class Variant(Node):
    """One way to serve the model: accelerator and parallelism, with its own cost and capacity."""

    name: Name = Field(description="name of the variant, unique in the tier")
    accelerator_type: Text = Field(description="kind of accelerator, such as NVIDIA-L40S")
    accelerators_per_replica: Count = Field(
        default=1, description="accelerators that one replica holds"
    )
    price_per_accelerator_hour: Price | None = Field(
        default=None, description="price of one accelerator for an hour, in any one currency"
    )
    engine_profile: Name | None = Field(
        default=None,
        description="packaged timing profile that a simulated replica plays; simulation only",
    )
    engine: Engine = Field(
        default=Engine(), description="arguments that its engine was started with"
    )
    capacity: CapacityPrior | None = Field(
        default=None, description="what a replica can do, where it is known beforehand"
    )
    local: LocalEngine | None = Field(
        default=None,
        description="how a replica is started on this machine; `phasewise local` only",
    )


class Replicas(Node):
    """How many replicas a pool may have."""

    min: ReplicaCount = Field(default=1, description="fewest replicas")
    max: ReplicaCount = Field(description="most replicas")
    initial: ReplicaCount | None = Field(
        default=None, description="replicas at the start of a simulation; `min` where absent"
    )

    @model_validator(mode="after")
    def _check_order(self) -> Replicas:
        if self.max < max(self.min, 1):
            raise problem(
                "no room between the limits",
                where="max",
                found=str(self.max),
                expected=f"at least {max(self.min, 1)}",
            )
        if self.initial is not None and not self.min <= self.initial <= self.max:
            raise problem(
                "outside the limits",
                where="initial",
                found=str(self.initial),
                expected=f"{self.min} to {self.max}",
            )
        return self


class Startup(Node):
    """What is known beforehand about how long a new replica takes; it is learned anyway."""

    seconds: Seconds | None = Field(
        default=None, description="time from wanted to ready that 95 of 100 starts keep, in seconds"
    )


class ScaleTarget(Node):
    """The Kubernetes object with a scale subresource that holds the pool."""

    kind: Text = Field(description="kind of the object, such as Deployment")
    name: Name = Field(description="name of the object")
    namespace: Name | None = Field(
        default=None, description="namespace of the object; the tier's own where absent"
    )


class Pool(Node):
    """All replicas of one phase and variant behind one scale target."""

    name: Name = Field(description="name of the pool, unique in the tier")
    phase: Phase = Field(description="what the pool does: prefill, decode or both")
    variant: Name = Field(description="name of the variant that serves here")
    replicas: Replicas = Field(description="how many replicas it may have")
    startup: Startup = Field(
        default=Startup(), description="how long a new replica takes to get ready"
    )
    scale_target: ScaleTarget | None = Field(
        default=None, description="Kubernetes object that holds the pool"
    )


class Budget(Node):
    """What all pools together may hold."""

    accelerators: Count | None = Field(
        default=None, description="most accelerators of all pools together; no limit where absent"
    )


class Router(Node):
    """The front end that sends requests to the pools."""

    kind: RouterKind = Field(
        default="none", description="whose page tells what users wait: epp, vllm-router or none"
    )
    policy: RouterPolicy = Field(
        default="least_load", description="how it picks a replica; simulation only"
    )


class KvTransfer(Node):
    """The network between prefill and decode."""

    bytes_per_second_per_replica: Rate | None = Field(
        default=None, description="KV that one replica can send or take, in bytes per second"
    )
    bytes_per_token: Rate | None = Field(default=None, description="KV of one token, in bytes")


class TierSpec(Node):
    """Everything about a tier but its name."""

    model: Text = Field(description="name of the served model, as the engines' pages call it")
    slo: SloSpec = Field(description="latency targets")
    variants: tuple[Variant, ...] = Field(
        min_length=1, max_length=64, description="ways to serve the model"
    )
    pools: tuple[Pool, ...] = Field(
        min_length=1, max_length=64, description="pools of replicas, each of one phase"
    )
    budget: Budget | None = Field(default=None, description="what all pools together may hold")
    router: Router = Field(
        default=Router(), description="front end that sends requests to the pools"
    )
    kv_transfer: KvTransfer = Field(
        default=KvTransfer(), description="network between prefill and decode"
    )

    @model_validator(mode="after")
    def _check_whole(self) -> TierSpec:
        _check_unique("variants", [variant.name for variant in self.variants])
        _check_unique("pools", [pool.name for pool in self.pools])
        self._check_variants_exist()
        self._check_phases_pair()
        self._check_budget_holds_minimum()
        return self

    def _check_variants_exist(self) -> None:
        names = [variant.name for variant in self.variants]
        for index, pool in enumerate(self.pools):
            if pool.variant not in names:
                raise problem(
                    "no such variant",
                    where=f"pools[{index}].variant",
                    found=repr(pool.variant),
                    expected=f"one of {', '.join(names)}",
                )

    def _check_phases_pair(self) -> None:
        phases = {pool.phase for pool in self.pools}
        for phase, other in ((Phase.PREFILL, Phase.DECODE), (Phase.DECODE, Phase.PREFILL)):
            if phase in phases and other not in phases:
                raise problem(
                    "half of a disaggregated tier",
                    where="pools",
                    found=f"a {phase} pool and no {other} pool",
                    expected="at least one of each, or only pools of phase both",
                )

    def _check_budget_holds_minimum(self) -> None:
        if self.budget is None or self.budget.accelerators is None:
            return
        per_replica = {variant.name: variant.accelerators_per_replica for variant in self.variants}
        needed = sum(pool.replicas.min * per_replica[pool.variant] for pool in self.pools)
        if needed > self.budget.accelerators:
            raise problem(
                "too small for the fewest replicas of all pools",
                where="budget.accelerators",
                found=str(self.budget.accelerators),
                expected=f"at least {needed}",
            )


class Tier(Node):
    """One disaggregated (or aggregated) serving tier of one model."""

    api_version: Literal["phasewise.dev/v1alpha1"] = Field(
        description="version of this schema: phasewise.dev/v1alpha1"
    )
    kind: Literal["Tier"] = Field(description="kind of document: Tier")
    metadata: Metadata = Field(description="how the tier is called")
    spec: TierSpec = Field(description="what the tier is made of")

    @property
    def name(self) -> str:
        """The tier's name, from its metadata."""
        return self.metadata.name

    @property
    def slo(self) -> Slo:
        """The latency targets in the shared words."""
        wanted = self.spec.slo
        return Slo(
            ttft_s=wanted.ttft_seconds,
            itl_s=wanted.itl_seconds,
            attainment_ratio=wanted.attainment_ratio,
        )

    @property
    def pool_ids(self) -> tuple[PoolId, ...]:
        """The pools in the shared words, in the order of the document."""
        return tuple(
            PoolId(tier=self.name, name=pool.name, phase=pool.phase, variant=pool.variant)
            for pool in self.spec.pools
        )

    def variant_of(self, pool: Pool) -> Variant:
        """The variant that serves in a pool of this tier."""
        return next(variant for variant in self.spec.variants if variant.name == pool.variant)


def _check_unique(where: str, names: Iterable[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise problem(
                "one name twice", where=where, found=f"{name!r} {times} times", expected="once"
            )


def load_tier(path: Path | str) -> Tier:
    """The tier in the YAML file at `path`; every fault is one `Misconfigured` sentence."""
    return load_document(Path(path), Tier)


def demo_tier_path() -> Path:
    """The packaged tier that the demo plays."""
    return Path(__file__).with_name("demo-tier.yaml")
