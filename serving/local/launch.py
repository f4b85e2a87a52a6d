"""How the engines and the router of a local tier are started: exact arguments and variables.

Starts nothing and looks at nothing. What each argument is for, and what was measured about it, is
in `docs/local.md`.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from serving.errors import Misconfigured
from serving.schema.local_engine import BLOCK_SIZE_TOKENS, LocalEngine
from serving.schema.tier import Pool, RouterPolicy, Tier, Variant
from serving.types import Phase

HOST: Final = "127.0.0.1"
PROGRESS_PAUSE_US: Final = 2000
"""NIXL's progress thread looks this often; without a pause it takes a core of an idle engine."""
KV_SPACE_BYTES: Final = 256 * 2**20
"""KV cache of a replica whose tier does not state one, in bytes."""
PLUGINS: Final = ("phasewise_vllm_steps", "phasewise_step_delay")

_ROLES: Final = {Phase.PREFILL: "kv_producer", Phase.DECODE: "kv_consumer"}
_POLICIES: Final[Mapping[RouterPolicy, str]] = {
    "least_load": "power_of_two",  # the nearest that the router has
    "power_of_two": "power_of_two",
    "round_robin": "round_robin",
}
_EVERY_ENGINE: Final = {
    # nothing is fetched or told
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # engines share the cores: bound threads of two would wait for each other on one
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # the worker within the engine core: one process less to import everything in
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # ours, and not vLLM's own LoRA resolvers
    "VLLM_PLUGINS": ",".join(PLUGINS),
    "NIXL_PTHR_DELAY_US": str(PROGRESS_PAUSE_US),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLaunch:
    """One engine. `env` is only what is added to the variables of whoever starts it."""

    name: str
    pool: str
    phase: Phase
    http_port: int
    side_channel_port: int
    nixl_metrics_port: int | None
    argv: tuple[str, ...]
    env: dict[str, str]

    @property
    def address(self) -> str:
        """Where it answers, as `host:port`."""
        return f"{HOST}:{self.http_port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterLaunch:
    """The router. `discovery_port` is `None` for a tier without prefill and decode pools."""

    http_port: int
    metrics_port: int
    discovery_port: int | None
    argv: tuple[str, ...]
    env: dict[str, str]

    @property
    def address(self) -> str:
        """Where it answers, as `host:port`."""
        return f"{HOST}:{self.http_port}"


def engine_launch(
    tier: Tier,
    pool: Pool,
    *,
    name: str,
    env_dir: Path,
    model_dir: Path,
    http_port: int,
    side_channel_port: int,
    nixl_metrics_port: int | None = None,
    otlp_endpoint: str | None = None,
    ucx_tls: str | None = None,
) -> ReplicaLaunch:
    """An engine of a pool, on loopback.

    `otlp_endpoint` is the whole URL for traces, spoken to as OTLP over HTTP. `ucx_tls` names UCX's
    transports (`tcp,self`); with `tcp` KV goes over the loopback device, where it can be shaped.
    `Misconfigured` if the variant has no local engine, or a cache too small for its longest
    request.
    """
    variant = tier.variant_of(pool)
    local = local_engine(variant)
    argv = [
        *(str(env_dir / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model_dir), "--served-model-name", tier.spec.model),
        *("--host", HOST, "--port", str(http_port)),
        *("--dtype", "float32", "--enforce-eager", "--seed", "0"),
        *("--max-model-len", str(variant.engine.max_model_len_tokens)),
        *("--max-num-seqs", str(variant.engine.max_num_seqs)),
        *("--max-num-batched-tokens", str(variant.engine.max_num_batched_tokens)),
        *_kv_cache(variant, local),
        *("--enable-logging-iteration-details", "--disable-uvicorn-access-log"),
        *_kv_transfer(pool, variant, local),
    ]
    env = dict(_EVERY_ENGINE)
    if local.step_delay is not None:
        env["PHASEWISE_STEP_DELAY"] = json.dumps(local.step_delay.model_dump())
    if pool.phase is not Phase.BOTH:
        env["VLLM_NIXL_SIDE_CHANNEL_HOST"] = HOST
        env["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(side_channel_port)
        env |= _transports(ucx_tls) | _nixl_metrics(nixl_metrics_port)
    if otlp_endpoint is not None:
        argv += ["--otlp-traces-endpoint", otlp_endpoint]
        env |= _traces(name, pool)
    return ReplicaLaunch(
        name=name,
        pool=pool.name,
        phase=pool.phase,
        http_port=http_port,
        side_channel_port=side_channel_port,
        nixl_metrics_port=None if pool.phase is Phase.BOTH else nixl_metrics_port,
        argv=tuple(argv),
        env=env,
    )


def router_launch(
    tier: Tier,
    *,
    env_dir: Path,
    http_port: int,
    metrics_port: int,
    discovery_port: int,
    worker_urls: Sequence[str] = (),
) -> RouterLaunch:
    """The router in front of the tier's pools.

    With prefill and decode pools it listens for registrations at the discovery port. In front of
    pools of phase both it has no discovery: it is told the `worker_urls`, and others later through
    its own `/add_worker`.
    """
    phases = {pool.phase for pool in tier.spec.pools}
    policy = _POLICIES[tier.spec.router.policy]
    argv = [
        *(str(env_dir / "bin" / "python"), "-m", "vllm_router.launch_router"),
        *("--host", HOST, "--port", str(http_port)),
        *("--prometheus-host", HOST, "--prometheus-port", str(metrics_port)),
        *("--policy", policy, "--worker-startup-check-interval", "1"),
    ]
    disaggregated = phases != {Phase.BOTH}
    if disaggregated:
        argv += ["--vllm-pd-disaggregation", "--kv-connector", "nixl"]
        argv += ["--vllm-discovery-address", f"{HOST}:{discovery_port}"]
    elif worker_urls:
        argv += ["--worker-urls", *worker_urls]
    return RouterLaunch(
        http_port=http_port,
        metrics_port=metrics_port,
        discovery_port=discovery_port if disaggregated else None,
        argv=tuple(argv),
        env={},
    )


def local_engine(variant: Variant) -> LocalEngine:
    """How replicas of the variant are started here, or `Misconfigured` if it does not say."""
    if variant.local is None:
        raise Misconfigured(
            "not a variant that can be started on this machine",
            where=f"variant {variant.name}",
            found="no `local` part",
            expected="`local` with a model, as in docs/local.md",
        )
    return variant.local


def kv_blocks(variant: Variant) -> int | None:
    """KV cache blocks of a replica; `None` where the tier does not state its KV capacity.

    vLLM keeps one of them for itself, and refuses to start with fewer than its longest request
    needs.
    """
    capacity = variant.engine.kv_capacity_tokens
    if capacity is None:
        return None
    blocks = capacity // BLOCK_SIZE_TOKENS
    needed = 1 - (-variant.engine.max_model_len_tokens // BLOCK_SIZE_TOKENS)
    if blocks < needed:
        raise Misconfigured(
            "smaller than the longest request",
            where=f"variant {variant.name}: engine.kvCapacityTokens",
            found=str(capacity),
            expected=f"at least {needed * BLOCK_SIZE_TOKENS} for a maxModelLenTokens of "
            f"{variant.engine.max_model_len_tokens}, or a smaller one of these",
        )
    return blocks


def _kv_cache(variant: Variant, local: LocalEngine) -> list[str]:
    """Exactly as large as the tier says. Said in bytes too, for vLLM fills what it is given."""
    blocks = kv_blocks(variant)
    if blocks is None:
        return ["--kv-cache-memory-bytes", str(KV_SPACE_BYTES)]
    needed_bytes = blocks * BLOCK_SIZE_TOKENS * local.model.kv_bytes_per_token
    return [
        *("--num-gpu-blocks-override", str(blocks)),
        *("--kv-cache-memory-bytes", str(needed_bytes)),
    ]


def _kv_transfer(pool: Pool, variant: Variant, local: LocalEngine) -> list[str]:
    if pool.phase is Phase.BOTH:
        return []
    extra = {"num_threads": 0, "kv_lease_duration": round(variant.engine.kv_lease_seconds)}
    transfer = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_both" if local.role_flip else _ROLES[pool.phase],
        "kv_buffer_device": "cpu",
        # vLLM's own choice is to fail a request whose KV cannot be pulled, because prefill died;
        # decode has the whole prompt, so it computes the KV itself
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": extra,
    }
    return ["--kv-transfer-config", json.dumps(transfer)]


def _transports(ucx_tls: str | None) -> dict[str, str]:
    if ucx_tls is None:
        return {}
    devices = {"UCX_NET_DEVICES": "lo"} if "tcp" in ucx_tls.split(",") else {}
    return {"UCX_TLS": ucx_tls, **devices}


def _nixl_metrics(port: int | None) -> dict[str, str]:
    if port is None:
        return {}
    return {
        "NIXL_TELEMETRY_ENABLE": "y",
        "NIXL_TELEMETRY_EXPORTER": "prometheus",
        "NIXL_TELEMETRY_PROMETHEUS_LOCAL": "y",
        "NIXL_TELEMETRY_PROMETHEUS_PORT": str(port),
    }


def _traces(name: str, pool: Pool) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_SERVICE_NAME": "vllm",
        "OTEL_RESOURCE_ATTRIBUTES": (
            f"service.instance.id={name},phasewise.pool={pool.name},phasewise.phase={pool.phase}"
        ),
    }
