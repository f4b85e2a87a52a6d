"""Good tier documents, and what can be said of any document at all."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from serving.errors import Misconfigured
from serving.schema.document import as_model
from serving.schema.faults import fields_by_key, node_class
from serving.schema.node import Node
from serving.schema.tier import Tier, demo_tier_path, load_tier
from serving.types import Phase, Slo

SMALLEST = """
apiVersion: phasewise.dev/v1alpha1
kind: Tier
metadata: {name: small}
spec:
  model: m
  slo: {ttftSeconds: 2, itlSeconds: 5e-2}
  variants: [{name: v, acceleratorType: cpu}]
  pools: [{name: all, phase: both, variant: v, replicas: {max: 3}}]
"""

FULL = """
apiVersion: phasewise.dev/v1alpha1
kind: Tier
metadata: {name: full, namespace: serving}
spec:
  model: meta-llama/Llama-3.1-8B-Instruct
  slo: {ttftSeconds: 2.5, itlSeconds: 0.05, attainmentRatio: 0.95}
  variants:
    - name: big
      acceleratorType: NVIDIA-H100-80GB-HBM3
      acceleratorsPerReplica: 4
      pricePerAcceleratorHour: 0
      engine: &engine
        {maxNumBatchedTokens: 2048, maxNumSeqs: 64, blockSizeTokens: 32, maxModelLenTokens: 8192,
         kvLeaseSeconds: 60, kvCapacityTokens: 400000}
      capacity:
        {prefillTokensPerSecond: 2e4, decodeBaseSeconds: 0.01, decodeSecondsPerSequence: 1e-4,
         decodeSecondsPerKvToken: 1.2e-8}
      local:
        model: {layers: 4, hiddenSize: 256, attentionHeads: 8, kvHeads: 4, headDim: 128, seed: 3}
        stepDelay: {baseSeconds: 0.01, secondsPerPrefillToken: 1e-4, secondsPerSequence: 0.001,
                    secondsPerKvToken: 1e-6}
        cpuCores: 0.5
        weightsBytesPerSecond: 1000000
    - {name: small, acceleratorType: NVIDIA-L4, engine: *engine}
  pools:
    - {name: prefill, phase: prefill, variant: big, replicas: {min: 0, max: 8, initial: 2},
       startup: {seconds: 90}, scaleTarget: {kind: Deployment, name: llm-prefill}}
    - {name: decode, phase: decode, variant: small, replicas: {max: 20},
       scaleTarget: {kind: LeaderWorkerSet, name: llm-decode, namespace: other}}
    - {name: decode-2, phase: decode, variant: big, replicas: {max: 4}}
  budget: {accelerators: 40}
  router: {kind: vllm-router, policy: round_robin}
  kvTransfer: {bytesPerSecondPerReplica: 12.5e9, bytesPerToken: 131072}
"""


def _load(tmp_path: Path, text: str) -> Tier:
    file = tmp_path / "tier.yaml"
    file.write_text(text)
    return load_tier(file)


def test_the_smallest_document_takes_every_default(tmp_path: Path) -> None:
    tier = _load(tmp_path, SMALLEST)
    pool, variant = tier.spec.pools[0], tier.spec.variants[0]

    assert tier.slo == Slo(ttft_s=2.0, itl_s=0.05, attainment_ratio=0.99)
    assert (pool.replicas.min, pool.replicas.initial, pool.startup.seconds) == (1, None, None)
    assert variant.price_per_accelerator_hour is None
    assert variant.capacity is None
    assert variant.engine.kv_capacity_tokens is None
    assert tier.spec.budget is None
    assert tier.spec.router.kind == "none"


def test_every_key_can_be_given(tmp_path: Path) -> None:
    tier = _load(tmp_path, FULL)
    first, second = tier.spec.variants

    assert first.engine == second.engine
    assert first.capacity is not None
    assert first.capacity.decode_seconds_per_kv_token == 1.2e-8
    assert first.price_per_accelerator_hour == 0  # a price of nothing is not an unknown price
    assert tier.variant_of(tier.spec.pools[1]) is second
    assert [pool.phase for pool in tier.pool_ids] == [Phase.PREFILL, Phase.DECODE, Phase.DECODE]
    assert str(tier.pool_ids[2]) == "full/decode-2"


def test_the_packaged_demo_tier_is_valid_and_disaggregated() -> None:
    tier = load_tier(demo_tier_path())

    assert tier.name == "demo"
    assert {pool.phase for pool in tier.pool_ids} == {Phase.PREFILL, Phase.DECODE}


def test_a_byte_order_mark_is_no_part_of_the_document(tmp_path: Path) -> None:
    file = tmp_path / "tier.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + SMALLEST.encode())

    assert load_tier(file).name == "small"


def test_a_tier_cannot_be_changed(tmp_path: Path) -> None:
    tier = _load(tmp_path, SMALLEST)

    with pytest.raises(ValidationError, match="frozen"):
        tier.spec.slo.ttft_seconds = 9.0


def test_a_document_written_from_a_tier_gives_the_same_tier(tmp_path: Path) -> None:
    tier = _load(tmp_path, FULL)
    text = yaml.safe_dump(tier.model_dump(mode="json", by_alias=True))

    assert _load(tmp_path, text) == tier


def _numbers(node: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(node, dict | list):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _numbers(child, (*path, key))
    elif isinstance(node, int | float):
        yield path


# YAML 1.1 takes 2e4 for text, and the tier's own reader does not
GIVEN = yaml.safe_load(re.sub(r"[\d.]+e-?\d+", lambda found: f"{float(found[0]):.12f}", FULL))


@pytest.mark.parametrize("path", list(_numbers(GIVEN)), ids=str)
@pytest.mark.parametrize("value", [1e308, 1e20, 10**20, float("inf"), float("nan"), -1])
def test_no_number_can_be_beyond_any_real_tier(path: tuple[str | int, ...], value: float) -> None:
    document = copy.deepcopy(GIVEN)
    node = document
    for step in path[:-1]:
        node = node[step]
    assert as_model(document, Tier, where="tier").name == "full"
    node[path[-1]] = value

    with pytest.raises(Misconfigured):
        as_model(document, Tier, where="tier")


def test_every_number_that_a_tier_can_hold_is_tried() -> None:
    def is_number(annotation: object) -> bool:
        return annotation in (int, float) or any(is_number(part) for part in get_args(annotation))

    def keys(node: type[Node]) -> Iterator[str]:
        for key, field in fields_by_key(node).items():
            inner = node_class(field.annotation)
            if inner is not None:
                yield from keys(inner)
            elif is_number(field.annotation):
                yield key

    found = set(keys(Tier))

    assert len(found) > 15
    assert found == {path[-1] for path in _numbers(GIVEN)}


@pytest.mark.parametrize(("seconds", "fits"), [(86_400, True), (86_401, False), (0, False)])
def test_a_start_up_takes_at_most_a_day(tmp_path: Path, seconds: int, fits: bool) -> None:
    text = FULL.replace("startup: {seconds: 90}", f"startup: {{seconds: {seconds}}}")
    if fits:
        assert _load(tmp_path, text).spec.pools[0].startup.seconds == seconds
    else:
        with pytest.raises(Misconfigured, match=r"startup\.seconds"):
            _load(tmp_path, text)


def _outcome(load: Callable[[], Tier]) -> Tier | str:
    """The tier, or the one line that refuses it; anything else that is raised fails the test."""
    try:
        return load()
    except Misconfigured as error:
        (line,) = str(error).splitlines()
        return line


KEY_WORDS = """apiVersion kind metadata spec name namespace model slo variants pools ttftSeconds
    ttftMs itlSeconds min max phase replicas variant engine acceleratorType budget accelerators"""
KEYS = st.sampled_from(KEY_WORDS.split()) | st.text(max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.dates()
    | st.binary(max_size=4)
    | st.sampled_from(["Tier", "phasewise.dev/v1alpha1", "prefill", "both", "l40s"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS | st.integers() | st.none(), inner, max_size=5)
    ),
    max_leaves=25,
)


@given(value=VALUES)
def test_any_yaml_value_gives_a_tier_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    file = tmp_path_factory.mktemp("any") / "tier.yaml"
    file.write_text(yaml.dump(value), encoding="utf-8", errors="surrogatepass")

    outcome = _outcome(lambda: load_tier(file))

    assert isinstance(outcome, Tier) or outcome.startswith(f"{file}: ")


def _places(value: object, place: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [place, *(deep for key, part in inner for deep in _places(part, (*place, key)))]


@given(data=st.data(), value=VALUES)
def test_any_value_anywhere_in_a_good_document_gives_a_tier_or_one_sentence(
    data: st.DataObject, value: object
) -> None:
    document = yaml.safe_load(FULL)
    *path, last = data.draw(st.sampled_from(_places(document)[1:]))
    node = document
    for step in path:
        node = node[step]
    node[last] = value

    outcome = _outcome(lambda: as_model(document, Tier, where="tier.yaml"))

    assert isinstance(outcome, Tier) or outcome.startswith("tier.yaml: ")
