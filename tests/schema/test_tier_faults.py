"""Every bad tier document gives one sentence: where, what, found, expected."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from serving.errors import Misconfigured
from serving.schema.tier import demo_tier_path, load_tier

Steps = tuple[str | int, ...]

_GONE = object()


def _changed(path: Steps, value: object) -> object:
    """The demo's document with one value put, or taken out, at a path."""
    document = yaml.safe_load(demo_tier_path().read_text())
    node = document
    for step in path[:-1]:
        node = node[step]
    if value is _GONE:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return document


def _refusal(file: Path) -> str:
    with pytest.raises(Misconfigured) as caught:
        load_tier(file)
    return str(caught.value).removeprefix(f"{file}: ")


SLO: Steps = ("spec", "slo")
POOL: Steps = ("spec", "pools", 0)
VARIANT: Steps = ("spec", "variants", 0)
PREFILL_ONLY = [{"name": "p", "phase": "prefill", "variant": "l40s", "replicas": {"max": 2}}]
DECODE_ONLY = [{"name": "d", "phase": "decode", "variant": "l40s", "replicas": {"max": 2}}]
TTFT_WORDS = "longest time to first token, from arrival at the front end, in seconds"

WRONG_VALUES = [
    pytest.param(
        (*SLO, "ttftMs"),
        2500,
        "spec.slo.ttftMs: unknown key: found ttftMs, expected ttftSeconds",
        id="unit-short",
    ),
    pytest.param(
        (*SLO, "ttftMilliseconds"),
        2500,
        "spec.slo.ttftMilliseconds: unknown key: found ttftMilliseconds, expected ttftSeconds",
        id="unit-long",
    ),
    pytest.param(
        (*SLO, "itl_seconds"),
        0.05,
        "spec.slo.itl_seconds: unknown key: found itl_seconds, expected itlSeconds",
        id="snake-case",
    ),
    pytest.param(
        (*SLO, "attainmentPercent"),
        99,
        "spec.slo.attainmentPercent: unknown key: found attainmentPercent, "
        "expected attainmentRatio",
        id="percent",
    ),
    pytest.param(
        (*POOL, "replicsa"),
        {},
        "spec.pools[0].replicsa: unknown key: found replicsa, expected replicas",
        id="typing-error",
    ),
    pytest.param(
        (*POOL, "zzz"),
        1,
        "spec.pools[0].zzz: unknown key: found zzz, "
        "expected one of name, phase, variant, replicas, startup, scaleTarget",
        id="nothing-near",
    ),
    pytest.param(
        (*VARIANT, "engine"),
        {"maxNumBatchedToken": 1},
        "spec.variants[0].engine.maxNumBatchedToken: unknown key: found maxNumBatchedToken, "
        "expected maxNumBatchedTokens",
        id="deep-unknown-key",
    ),
    pytest.param(
        (*SLO, "ttftSeconds"),
        _GONE,
        f"spec.slo.ttftSeconds: required key is missing: found nothing, expected {TTFT_WORDS}",
        id="missing",
    ),
    pytest.param(
        (*SLO, "ttftSeconds"),
        2500,
        "spec.slo.ttftSeconds: looks like milliseconds: found 2500, expected seconds, at most 600",
        id="ttft-in-milliseconds",
    ),
    pytest.param(
        (*SLO, "itlSeconds"),
        50,
        "spec.slo.itlSeconds: looks like milliseconds: found 50, expected seconds, at most 10",
        id="itl-in-milliseconds",
    ),
    pytest.param(
        (*SLO, "itlSeconds"),
        "50ms",
        "spec.slo.itlSeconds: wrong value: found '50ms', expected a number",
        id="number-with-unit",
    ),
    pytest.param(
        (*SLO, "itlSeconds"),
        "0.05",
        "spec.slo.itlSeconds: wrong value: found '0.05', expected a number",
        id="number-in-quotes",
    ),
    pytest.param(
        (*SLO, "itlSeconds"),
        True,
        "spec.slo.itlSeconds: wrong value: found the boolean true, expected a number",
        id="boolean-is-no-number",
    ),
    pytest.param(
        (*SLO, "itlSeconds"),
        float("nan"),
        "spec.slo.itlSeconds: wrong value: found nan, expected a finite number",
        id="nan",
    ),
    pytest.param(
        (*SLO, "itlSeconds"),
        float("inf"),
        "spec.slo.itlSeconds: wrong value: found inf, expected a finite number",
        id="inf",
    ),
    pytest.param(
        (*SLO, "ttftSeconds"),
        0,
        "spec.slo.ttftSeconds: wrong value: found 0, expected a number above 0",
        id="zero-target",
    ),
    pytest.param(
        (*SLO, "attainmentRatio"),
        99,
        "spec.slo.attainmentRatio: wrong value: found 99, expected a number below 1",
        id="ratio-in-percent",
    ),
    pytest.param(
        (*SLO, "attainmentRatio"),
        1.0,
        "spec.slo.attainmentRatio: wrong value: found 1.0, expected a number below 1",
        id="no-error-budget",
    ),
    pytest.param(
        ("spec", "slo"),
        None,
        "spec.slo: wrong value: found nothing, expected a mapping",
        id="empty-section",
    ),
    pytest.param(
        ("spec", "pools"),
        [],
        "spec.pools: wrong value: found an empty list, expected a list of at least 1",
        id="no-pools",
    ),
    pytest.param(
        ("spec", "pools"),
        {"name": "prefill"},
        "spec.pools: wrong value: found a mapping, expected a list",
        id="mapping-for-list",
    ),
    pytest.param(
        POOL,
        "prefill",
        "spec.pools[0]: wrong value: found 'prefill', expected a mapping",
        id="text-for-mapping",
    ),
    pytest.param(
        (*POOL, "phase"),
        "prefil",
        "spec.pools[0].phase: wrong value: found 'prefil', expected prefill, decode or both",
        id="phase",
    ),
    pytest.param(
        (*POOL, "name"),
        "Prefill Pool",
        "spec.pools[0].name: not a name: found 'Prefill Pool', "
        "expected at most 63 lower-case letters, digits, dots and dashes",
        id="pool-name",
    ),
    pytest.param(
        (*POOL, "name"),
        "a" * 64,
        "spec.pools[0].name: not a name: found a text of 64 characters, "
        "expected at most 63 lower-case letters, digits, dots and dashes",
        id="pool-name-too-long",
    ),
    pytest.param(
        (*POOL, "name"),
        False,
        "spec.pools[0].name: wrong value: found the boolean false, expected text",
        id="yaml-turned-no-into-a-boolean",
    ),
    pytest.param(
        (*POOL, "name"),
        "decode",
        "spec.pools: one name twice: found 'decode' 2 times, expected once",
        id="pool-names-collide",
    ),
    pytest.param(
        (*POOL, "variant"),
        "h100",
        "spec.pools[0].variant: no such variant: found 'h100', expected one of l40s",
        id="variant-unknown",
    ),
    pytest.param(
        (*POOL, "replicas"),
        {"min": 5, "max": 3},
        "spec.pools[0].replicas.max: no room between the limits: found 3, expected at least 5",
        id="min-above-max",
    ),
    pytest.param(
        (*POOL, "replicas"),
        {"min": 0, "max": 0},
        "spec.pools[0].replicas.max: no room between the limits: found 0, expected at least 1",
        id="no-replica-ever",
    ),
    pytest.param(
        (*POOL, "replicas"),
        {"min": 2, "max": 4, "initial": 1},
        "spec.pools[0].replicas.initial: outside the limits: found 1, expected 2 to 4",
        id="initial-outside",
    ),
    pytest.param(
        (*POOL, "replicas", "min"),
        -1,
        "spec.pools[0].replicas.min: wrong value: found -1, expected a number of at least 0",
        id="negative-replicas",
    ),
    pytest.param(
        (*POOL, "replicas", "max"),
        2.5,
        "spec.pools[0].replicas.max: wrong value: found 2.5, expected a whole number",
        id="half-a-replica",
    ),
    pytest.param(
        (*POOL, "replicas", "max"),
        1_000_000,
        "spec.pools[0].replicas.max: wrong value: found 1000000, "
        "expected a number of at most 10000",
        id="absurd-replicas",
    ),
    pytest.param(
        ("spec", "pools"),
        PREFILL_ONLY,
        "spec.pools: half of a disaggregated tier: found a prefill pool and no decode pool, "
        "expected at least one of each, or only pools of phase both",
        id="prefill-alone",
    ),
    pytest.param(
        ("spec", "pools"),
        DECODE_ONLY,
        "spec.pools: half of a disaggregated tier: found a decode pool and no prefill pool, "
        "expected at least one of each, or only pools of phase both",
        id="decode-alone",
    ),
    pytest.param(
        ("spec", "budget"),
        {"accelerators": 1},
        "spec.budget.accelerators: too small for the fewest replicas of all pools: "
        "found 1, expected at least 2",
        id="budget-under-minimum",
    ),
    pytest.param(
        ("spec", "router", "policy"),
        "random",
        "spec.router.policy: wrong value: found 'random', "
        "expected least_load, round_robin or power_of_two",
        id="router-policy",
    ),
    pytest.param(
        ("apiVersion",),
        "v1",
        "apiVersion: wrong value: found 'v1', expected phasewise.dev/v1alpha1",
        id="api-version",
    ),
    pytest.param(
        ("spec", "model"),
        "",
        "spec.model: wrong value: found '', expected text that is not empty",
        id="empty-model",
    ),
    pytest.param(
        ("spec", "model"),
        "m" * 254,
        "spec.model: wrong value: found a text of 254 characters, "
        "expected text of at most 253 characters",
        id="endless-model",
    ),
    pytest.param(
        (*VARIANT, "engine"),
        {"maxNumSeqs": 10**30},
        "spec.variants[0].engine.maxNumSeqs: wrong value: "
        "found a whole number of more than 64 bits, expected a number of at most 9007199254740992",
        id="number-beyond-64-bits",
    ),
    pytest.param(
        ("spec", 3),
        "x",
        "spec: a key is not text: found 3, expected keys that are text",
        id="numeric-key",
    ),
]


@pytest.mark.parametrize(("path", "value", "sentence"), WRONG_VALUES)
def test_a_wrong_value_is_named_with_its_place(
    tmp_path: Path, path: Steps, value: object, sentence: str
) -> None:
    file = tmp_path / "tier.yaml"
    file.write_text(yaml.safe_dump(_changed(path, value)))

    assert _refusal(file) == sentence


NOT_DOCUMENTS = [
    pytest.param(b"", "empty document: found nothing", id="empty"),
    pytest.param(b"# only a comment\n", "empty document: found nothing", id="comment"),
    pytest.param(b"- a\n- b\n", "not a mapping: found a list", id="list"),
    pytest.param(b"tier", "not a mapping: found 'tier'", id="text"),
    pytest.param(b"\x7fELF\xff\xfe", "not text: found byte 4 is not UTF-8", id="binary"),
    pytest.param(
        b"a: 1\nb: [1, 2\n",
        "line 3, column 1: not YAML: found expected ',' or ']', but got '<stream end>'",
        id="unclosed",
    ),
    pytest.param(b"a: \x00", "not YAML: found unacceptable character", id="control-character"),
    pytest.param(
        b"spec: {a: 1}\nspec: {b: 1}\n",
        "line 2, column 1: not YAML: found key 'spec' is given twice",
        id="duplicate-key",
    ),
    pytest.param(
        b"a: &a {b: 1}\nc: {<<: *a}\n",
        "line 2, column 5: not YAML: found merge keys (<<) are not read here",
        id="merge-key",
    ),
    pytest.param(
        b"a: 1\n---\nb: 1\n",
        "line 2, column 1: not YAML: found but found another document",
        id="two",
    ),
    pytest.param(b"[" * 5000, "not YAML: found brackets nested too deep", id="nested"),
    pytest.param(b"a: " + b"9" * 5000, "not YAML: found Exceeds the limit", id="endless-number"),
    pytest.param(b"a: !!bool maybe", "not YAML: found 'maybe'", id="impossible-tag"),
    pytest.param(
        b"a: !!python/object:os.system x",
        "line 1, column 4: not YAML: found could not determine a constructor for the tag",
        id="code",
    ),
    pytest.param(b"a: 2024-13-45", "not YAML: found month must be in 1..12", id="no-such-date"),
    pytest.param(b"a: " + b"x" * 300_000, "too large: found more than 262144 bytes", id="huge"),
]


@pytest.mark.parametrize(("content", "beginning"), NOT_DOCUMENTS)
def test_what_is_no_document_is_refused_in_one_sentence(
    tmp_path: Path, content: bytes, beginning: str
) -> None:
    file = tmp_path / "tier.yaml"
    file.write_bytes(content)

    refusal = _refusal(file)

    assert refusal.startswith(beginning)
    assert "\n" not in refusal
    assert ", expected " in refusal


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert _refusal(tmp_path / "no.yaml") == "no such file: found nothing, expected a YAML file"


def test_a_folder_is_not_a_document(tmp_path: Path) -> None:
    assert _refusal(tmp_path) == "not a file: found a folder or device, expected a YAML file"


def test_a_name_with_a_zero_byte_is_refused() -> None:
    with pytest.raises(Misconfigured, match="cannot be read"):
        load_tier("a\0b")


def test_an_unknown_key_goes_before_the_key_that_it_leaves_missing(tmp_path: Path) -> None:
    document = _changed((*SLO, "ttftSeconds"), _GONE)
    assert isinstance(document, dict)
    document["spec"]["slo"]["ttftSec"] = 2
    file = tmp_path / "tier.yaml"
    file.write_text(yaml.safe_dump(document))

    assert _refusal(file) == ("spec.slo.ttftSec: unknown key: found ttftSec, expected ttftSeconds")


def test_a_document_that_contains_itself_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tier.yaml"
    file.write_text("&a {apiVersion: phasewise.dev/v1alpha1, kind: Tier, metadata: *a, spec: *a}")

    assert _refusal(file).count("\n") == 0


def test_aliases_that_multiply_cost_nothing(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    file = tmp_path / "tier.yaml"
    file.write_text("\n".join(lines))

    assert _refusal(file).startswith("a0: unknown key")
