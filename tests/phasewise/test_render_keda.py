"""What `phasewise render keda` writes, field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.keda_answers import AskedPool, asked_pool
from phasewise import cli
from phasewise.render_keda import render
from phasewise.rendering import RenderRequest
from serving.errors import Misconfigured
from serving.schema.document import as_model
from serving.schema.strict_yaml import read_mapping
from serving.schema.tier import Tier, demo_tier_path, load_tier


def _tier(*, name: str = "demo", pools: list[dict[str, Any]] | None = None) -> Tier:
    document: Any = read_mapping(demo_tier_path())
    document["metadata"]["name"] = name
    if pools is not None:
        document["spec"]["pools"] = pools
    return as_model(document, Tier, where="test")


def _pool(**changes: Any) -> dict[str, Any]:
    pool = {"name": "all", "phase": "both", "variant": "l40s", "replicas": {"min": 2, "max": 40}}
    return pool | changes


def _rendered(*tiers: Tier, **options: Any) -> dict[str, dict[str, Any]]:
    texts = render(RenderRequest(tiers=tiers or (load_tier(demo_tier_path()),), **options))
    return {name: yaml.safe_load(text) for name, text in texts.items()}


def _object(pool: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    files = _rendered(_tier(pools=[pool or _pool()]), **options)
    return files["scaledobject-demo-all.yaml"]


def test_every_pool_has_one_scaled_object() -> None:
    files = _rendered()

    assert list(files) == ["scaledobject-demo-prefill.yaml", "scaledobject-demo-decode.yaml"]
    for document in files.values():
        assert (document["apiVersion"], document["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
        assert document["metadata"]["namespace"] == "default"


def test_the_trigger_names_what_serve_asks_for() -> None:
    (trigger,) = _object()["spec"]["triggers"]

    assert trigger["type"] == "external"
    assert trigger["metricType"] == "AverageValue"
    assert trigger["metadata"]["scalerAddress"] == "phasewise-serve.default.svc:6000"
    assert asked_pool(trigger["metadata"], {"demo": ("all",)}) == AskedPool(tier="demo", pool="all")
    assert all(isinstance(value, str) for value in trigger["metadata"].values())


def test_the_limits_are_those_of_the_pool() -> None:
    spec = _object()["spec"]

    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 40)
    assert spec["pollingInterval"] == 15
    assert spec["cooldownPeriod"] == 0


@pytest.mark.parametrize(("direction", "percent"), [("scaleUp", 900), ("scaleDown", 100)])
def test_nothing_delays_or_swallows_a_plan(direction: str, percent: int) -> None:
    behavior = _object()["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"][direction]
    largest = {rule["type"]: rule["value"] for rule in behavior["policies"]}

    assert behavior["tolerance"] == "0"
    assert behavior["stabilizationWindowSeconds"] == 0
    assert behavior["selectPolicy"] == "Max"
    assert largest == {"Percent": percent, "Pods": 40}
    assert {rule["periodSeconds"] for rule in behavior["policies"]} == {15}


@pytest.mark.parametrize(("least", "replicas"), [(2, 2), (1, 1), (0, 1)])
def test_without_an_answer_the_pool_keeps_its_size_and_never_goes_to_zero(
    least: int, replicas: int
) -> None:
    fallback = _object(_pool(replicas={"min": least, "max": 40}))["spec"]["fallback"]

    assert fallback == {
        "failureThreshold": 3,
        "behavior": "currentReplicas",
        "replicas": replicas,
    }


TARGETS = [
    pytest.param(None, ("apps/v1", "Deployment", "all", "default"), id="named-like-the-pool"),
    pytest.param(
        {"kind": "StatefulSet", "name": "engine", "namespace": "llm"},
        ("apps/v1", "StatefulSet", "engine", "llm"),
        id="stateful-set-elsewhere",
    ),
    pytest.param(
        {"kind": "LeaderWorkerSet", "name": "engine"},
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "engine", "default"),
        id="leader-worker-set",
    ),
]


@pytest.mark.parametrize(("target", "expected"), TARGETS)
def test_the_target_is_the_one_of_the_tier(
    target: dict[str, str] | None, expected: tuple[str, str, str, str]
) -> None:
    document = _object(_pool() if target is None else _pool(scaleTarget=target))
    found = document["spec"]["scaleTargetRef"]

    assert (
        found["apiVersion"],
        found["kind"],
        found["name"],
        document["metadata"]["namespace"],
    ) == expected


@pytest.mark.parametrize("named", [True, False])
def test_an_assumed_target_is_said_in_a_comment(named: bool) -> None:
    target = {"scaleTarget": {"kind": "Deployment", "name": "x"}} if named else {}
    tier = _tier(pools=[_pool(**target)])
    (text,) = render(RenderRequest(tiers=(tier,))).values()

    assert ("names no scaleTarget" in text) is not named


def test_a_target_of_an_unknown_api_is_refused() -> None:
    with pytest.raises(Misconfigured, match="scaleTarget"):
        _object(_pool(scaleTarget={"kind": "Rollout", "name": "x"}))


def test_without_tls_nothing_of_it_is_written() -> None:
    (trigger,) = _object()["spec"]["triggers"]

    assert "authenticationRef" not in trigger
    assert "enableTLS" not in trigger["metadata"]


def test_with_tls_each_namespace_has_the_certificates_that_its_triggers_name() -> None:
    elsewhere = _pool(
        name="second", scaleTarget={"kind": "Deployment", "name": "x", "namespace": "llm"}
    )
    files = _rendered(_tier(pools=[_pool(), elsewhere]), tls=True)
    trigger = files["scaledobject-demo-second.yaml"]["spec"]["triggers"][0]
    found = files["triggerauthentication-llm.yaml"]

    assert trigger["metadata"]["enableTLS"] == "true"
    assert trigger["authenticationRef"]["name"] == found["metadata"]["name"]
    assert found["kind"] == "TriggerAuthentication"
    assert found["metadata"]["namespace"] == "llm"
    assert {r["parameter"]: r["key"] for r in found["spec"]["secretTargetRef"]} == {
        "caCert": "ca.crt",
        "tlsClientCert": "tls.crt",
        "tlsClientKey": "tls.key",
    }
    assert "triggerauthentication-default.yaml" in files


def test_long_names_are_cut_to_what_a_label_of_the_hpa_holds_and_stay_apart() -> None:
    pools = [_pool(name="p" * 60 + end) for end in "ab"]
    names = [d["metadata"]["name"] for d in _rendered(_tier(name="t" * 60, pools=pools)).values()]

    assert len(set(names)) == 2
    assert all(len(f"keda-hpa-{name}") <= 63 for name in names)


def test_the_address_can_be_given() -> None:
    (trigger,) = _object(scaler_address="10.0.0.7:6100")["spec"]["triggers"]

    assert trigger["metadata"]["scalerAddress"] == "10.0.0.7:6100"


# The command


def _run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(["render", *arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_the_command_writes_the_demos_tier_and_says_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("keda", str(tmp_path / "new" / "folder")) == 0

    files = capsys.readouterr().out.split()
    assert [Path(file).name for file in files] == list(_rendered())
    assert all(Path(file).is_file() for file in files)


def test_a_settings_file_renders_all_its_tiers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tier.yaml").write_text(
        demo_tier_path().read_text().replace("name: demo", "name: chat")
    )
    file = tmp_path / "phasewise.yaml"
    file.write_text("tiers: [{file: tier.yaml}]\nsource: {httpSd: 'http://127.0.0.1:1/sd'}\n")

    assert _run("keda", str(tmp_path / "out"), "-c", str(file)) == 0
    assert "scaledobject-chat-prefill.yaml" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["nothing", "{}"], "nothing is called that", id="kind"),
        pytest.param(["keda", "{}", "--tier", "a", "-c", "b"], "which tiers?", id="both"),
        pytest.param(["keda", "{}/file/below"], "cannot be written", id="folder"),
    ],
)
def test_what_cannot_be_rendered_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    (tmp_path / "file").write_text("")

    assert _run(*(argument.format(tmp_path) for argument in arguments)) == cli.EXIT_MISCONFIGURED
    assert words in capsys.readouterr().err
