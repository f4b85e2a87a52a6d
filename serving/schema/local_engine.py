"""How `phasewise local` starts a replica of a variant on this machine; part of the tier document.

Nothing here is used for a tier that runs elsewhere. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, model_validator

from serving.schema.node import Node, problem

BLOCK_SIZE_TOKENS: Final = 128
"""Size of a KV cache block of vLLM on a CPU, in tokens (vllm/platforms/cpu.py, vLLM 0.32.0)."""

BYTES_PER_VALUE: Final = 4
"""Weights and KV are float32: two engines then give one greedy answer, whatever the batch."""

Cores = Annotated[float, Field(strict=True, gt=0, le=1024)]
DelaySeconds = Annotated[float, Field(strict=True, ge=0, le=60)]
Dimension = Annotated[int, Field(strict=True, ge=1, le=65_536)]
Heads = Annotated[int, Field(strict=True, ge=1, le=256)]
LayerCount = Annotated[int, Field(strict=True, ge=1, le=256)]
HeadSize = Annotated[int, Field(strict=True, ge=32, le=256)]
Seed = Annotated[int, Field(strict=True, ge=0, le=2**32 - 1)]
BytesPerSecond = Annotated[float, Field(strict=True, ge=1, le=1e15)]


class LocalModel(Node):
    """A generated model of the Qwen3 kind with random weights: small, and the same every time."""

    layers: LayerCount = Field(default=2, description="transformer layers")
    hidden_size: Dimension = Field(default=128, description="width of the residual stream")
    attention_heads: Heads = Field(default=4, description="query heads of a layer")
    kv_heads: Heads = Field(
        default=2, description="key and value heads of a layer; divides `attentionHeads`"
    )
    head_dim: HeadSize = Field(default=64, description="width of a head; a multiple of 32")
    seed: Seed = Field(default=0, description="seed of the random weights")

    @model_validator(mode="after")
    def _check_heads(self) -> LocalModel:
        if self.attention_heads % self.kv_heads:
            raise problem(
                "does not divide the query heads",
                where="kvHeads",
                found=str(self.kv_heads),
                expected=f"a divisor of {self.attention_heads}",
            )
        if self.head_dim % 32:
            raise problem(
                "not a width that the CPU attention computes",
                where="headDim",
                found=str(self.head_dim),
                expected="a multiple of 32",
            )
        return self

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in all layers, in bytes."""
        return 2 * self.layers * self.kv_heads * self.head_dim * BYTES_PER_VALUE


class StepDelay(Node):
    """Stated slowness: an engine step sleeps the sum of these parts before it computes."""

    base_seconds: DelaySeconds = Field(default=0.0, description="part of every step, in seconds")
    seconds_per_prefill_token: DelaySeconds = Field(
        default=0.0, description="for each prompt token that the step computes, in seconds"
    )
    seconds_per_sequence: DelaySeconds = Field(
        default=0.0, description="for each request that decodes in the step, in seconds"
    )
    seconds_per_kv_token: DelaySeconds = Field(
        default=0.0, description="for each KV token of the requests that decode, in seconds"
    )


class LocalEngine(Node):
    """A real engine on this machine, for `phasewise local`: model, slowness and capacity."""

    model: LocalModel = Field(
        default=LocalModel(), description="generated model that the replicas serve"
    )
    step_delay: StepDelay | None = Field(
        default=None, description="stated slowness of a step; as fast as the machine where absent"
    )
    cpu_cores: Cores | None = Field(
        default=None,
        description="CPU quota of a replica, in cores, where a cgroup can be made; none if absent",
    )
    weights_bytes_per_second: BytesPerSecond | None = Field(
        default=None,
        description="how fast weights come from their source into an empty cache, in bytes per "
        "second; as fast as the disk where absent",
    )
    role_flip: Annotated[bool, Field(strict=True)] = Field(
        default=True,
        description="whether a replica can change between prefill and decode without a restart",
    )
