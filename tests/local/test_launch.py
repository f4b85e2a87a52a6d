"""How engines and router are started: the whole command, and what differs between kinds of tier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serving.errors import Misconfigured
from serving.local.launch import ReplicaLaunch, engine_launch, router_launch
from serving.schema.document import as_model
from serving.schema.tier import Tier
from serving.types import Phase

PAIR = (("prefill", "prefill"), ("decode", "decode"))
ENGINE = {
    "maxNumBatchedTokens": 1024,
    "maxNumSeqs": 16,
    "maxModelLenTokens": 2048,
    "kvCapacityTokens": 8200,
    "kvLeaseSeconds": 20.0,
}


def _tier(
    *,
    pools: tuple[tuple[str, str], ...] = PAIR,
    engine: dict[str, Any] | None = None,
    local: dict[str, Any] | None = None,
    policy: str = "round_robin",
) -> Tier:
    variant = {"name": "cpu", "acceleratorType": "cpu", "engine": engine or ENGINE}
    document = {
        "apiVersion": "phasewise.dev/v1alpha1",
        "kind": "Tier",
        "metadata": {"name": "here"},
        "spec": {
            "model": "tiny",
            "slo": {"ttftSeconds": 2.0, "itlSeconds": 0.1},
            "variants": [variant if local is None else {**variant, "local": local}],
            "pools": [
                {"name": name, "phase": phase, "variant": "cpu", "replicas": {"max": 2}}
                for name, phase in pools
            ],
            "router": {"policy": policy},
        },
    }
    return as_model(document, Tier, where="here.yaml")


def _launch(tier: Tier, pool: int = 0, **more: Any) -> ReplicaLaunch:
    return engine_launch(
        tier,
        tier.spec.pools[pool],
        name="prefill-1",
        env_dir=Path("/env"),
        model_dir=Path("/models/m"),
        http_port=20100,
        side_channel_port=20200,
        **more,
    )


def _option(launch: ReplicaLaunch, name: str) -> str | None:
    return launch.argv[launch.argv.index(name) + 1] if name in launch.argv else None


def _transfer(launch: ReplicaLaunch) -> dict[str, Any]:
    transfer: dict[str, Any] = json.loads(_option(launch, "--kv-transfer-config") or "null")
    return transfer


def test_the_whole_command_of_a_prefill_replica() -> None:
    launch = _launch(_tier(local={}))

    # 8200 tokens are 64 whole blocks of 128; 2 layers x 2 KV heads x 64 x 2 x 4 bytes a token
    assert launch.argv == (
        *("/env/bin/python", "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", "/models/m", "--served-model-name", "tiny"),
        *("--host", "127.0.0.1", "--port", "20100"),
        *("--dtype", "float32", "--enforce-eager", "--seed", "0"),
        *("--max-model-len", "2048", "--max-num-seqs", "16", "--max-num-batched-tokens", "1024"),
        *("--num-gpu-blocks-override", "64"),
        *("--kv-cache-memory-bytes", str(64 * 128 * 2048)),
        *("--enable-logging-iteration-details", "--disable-uvicorn-access-log"),
        "--kv-transfer-config",
        '{"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu", '
        '"kv_load_failure_policy": "recompute", '
        '"kv_connector_extra_config": {"num_threads": 0, "kv_lease_duration": 20}}',
    )
    assert launch.env == {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_PLUGINS": "phasewise_vllm_steps,phasewise_step_delay",
        "NIXL_PTHR_DELAY_US": "2000",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": "20200",
    }
    assert (launch.name, launch.pool, launch.phase) == ("prefill-1", "prefill", Phase.PREFILL)
    assert launch.address == "127.0.0.1:20100"


@pytest.mark.parametrize(
    ("pool", "flip", "role"),
    [
        (0, True, "kv_both"),
        (1, True, "kv_both"),
        (0, False, "kv_producer"),
        (1, False, "kv_consumer"),
    ],
)
def test_the_role_is_fixed_only_where_no_flip_is_wanted(pool: int, flip: bool, role: str) -> None:
    launch = _launch(_tier(local={"roleFlip": flip}), pool)

    assert _transfer(launch)["kv_role"] == role


def test_an_aggregated_replica_has_no_connector_and_nothing_of_nixl() -> None:
    tier = _tier(pools=(("all", "both"),), local={})
    launch = _launch(tier, ucx_tls="tcp,self", nixl_metrics_port=20300)

    assert _transfer(launch) is None
    assert launch.nixl_metrics_port is None
    assert [name for name in launch.env if name.startswith(("UCX", "NIXL_TEL", "VLLM_NIXL"))] == []


def test_a_tier_that_states_no_kv_capacity_gets_a_small_cache_and_no_number_of_blocks() -> None:
    launch = _launch(_tier(engine={"maxModelLenTokens": 2048}, local={}))

    assert _option(launch, "--num-gpu-blocks-override") is None
    assert _option(launch, "--kv-cache-memory-bytes") == str(256 * 2**20)


def test_the_stated_slowness_is_handed_to_the_engine_as_json() -> None:
    launch = _launch(_tier(local={"stepDelay": {"baseSeconds": 0.01, "secondsPerSequence": 0.002}}))

    assert json.loads(launch.env["PHASEWISE_STEP_DELAY"]) == {
        "base_seconds": 0.01,
        "seconds_per_prefill_token": 0.0,
        "seconds_per_sequence": 0.002,
        "seconds_per_kv_token": 0.0,
    }


@pytest.mark.parametrize(
    ("tls", "added"),
    [
        (None, {}),
        ("shm,self", {"UCX_TLS": "shm,self"}),
        ("tcp,self", {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}),
    ],
)
def test_tcp_between_replicas_goes_over_loopback(tls: str | None, added: dict[str, str]) -> None:
    env = _launch(_tier(local={}), ucx_tls=tls).env

    assert {name: value for name, value in env.items() if name.startswith("UCX")} == added


def test_nixls_own_page_and_traces_are_on_only_where_asked_for() -> None:
    tier = _tier(local={})
    plain = _launch(tier)
    told = _launch(tier, nixl_metrics_port=20300, otlp_endpoint="http://127.0.0.1:4318/v1/traces")

    assert {name: told.env[name] for name in sorted(told.env.keys() - plain.env.keys())} == {
        "NIXL_TELEMETRY_ENABLE": "y",
        "NIXL_TELEMETRY_EXPORTER": "prometheus",
        "NIXL_TELEMETRY_PROMETHEUS_LOCAL": "y",
        "NIXL_TELEMETRY_PROMETHEUS_PORT": "20300",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_RESOURCE_ATTRIBUTES": (
            "service.instance.id=prefill-1,phasewise.pool=prefill,phasewise.phase=prefill"
        ),
        "OTEL_SERVICE_NAME": "vllm",
    }
    assert set(told.argv) - set(plain.argv) == {
        "--otlp-traces-endpoint",
        "http://127.0.0.1:4318/v1/traces",
    }


def test_a_variant_without_a_local_part_cannot_be_started_here() -> None:
    with pytest.raises(Misconfigured, match=r"variant cpu: .* found no `local` part"):
        _launch(_tier())


@pytest.mark.parametrize(("tokens", "enough"), [(2048, False), (2175, False), (2176, True)])
def test_the_cache_holds_the_longest_request_and_vllms_own_block(tokens: int, enough: bool) -> None:
    tier = _tier(engine={**ENGINE, "kvCapacityTokens": tokens}, local={})

    if enough:
        assert _option(_launch(tier), "--num-gpu-blocks-override") == "17"
    else:
        with pytest.raises(Misconfigured, match=f"found {tokens}, expected at least 2176 for"):
            _launch(tier)


@pytest.mark.parametrize(
    ("policy", "called"),
    [
        ("least_load", "power_of_two"),
        ("power_of_two", "power_of_two"),
        ("round_robin", "round_robin"),
    ],
)
def test_the_router_of_a_pair_is_found_by_its_replicas(policy: str, called: str) -> None:
    launch = router_launch(
        _tier(policy=policy),
        env_dir=Path("/env"),
        http_port=20001,
        metrics_port=20002,
        discovery_port=20003,
    )

    assert launch.argv == (
        *("/env/bin/python", "-m", "vllm_router.launch_router"),
        *("--host", "127.0.0.1", "--port", "20001"),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", "20002"),
        *("--policy", called, "--worker-startup-check-interval", "1"),
        *("--vllm-pd-disaggregation", "--kv-connector", "nixl"),
        *("--vllm-discovery-address", "127.0.0.1:20003"),
    )
    assert launch.discovery_port == 20003


def test_the_router_of_an_aggregated_tier_is_told_its_replicas() -> None:
    launch = router_launch(
        _tier(pools=(("all", "both"),)),
        env_dir=Path("/env"),
        http_port=20001,
        metrics_port=20002,
        discovery_port=20003,
        worker_urls=["http://127.0.0.1:20100"],
    )

    assert launch.argv[-2:] == ("--worker-urls", "http://127.0.0.1:20100")
    assert launch.discovery_port is None
