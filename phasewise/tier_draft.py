"""A tier document as far as pages tell it, as text with its open questions marked `# TODO`.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collector.evidence import Dialect, Part
from phasewise.doctor_targets import Examined, pool_roles
from phasewise.engine_facts import EngineFacts, engine_facts
from serving.dialects.page import total
from serving.types import Phase

_MOVED = "vllm:nixl_bytes_transferred_sum"
_EXTERNAL = "vllm:external_prefix_cache_hits_total"
_ROUTERS = {Dialect.EPP: "epp", Dialect.VLLM_ROUTER: "vllm-router"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPool:
    """A pool that was seen: its size, phase (`None`: not told) and where the phase is known from.

    `variant` names its engine facts in the draft; pools with equal facts share one.
    """

    name: str
    phase: Phase | None
    known_from: str
    replicas: int
    variant: str
    engine: EngineFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What pages tell of a tier."""

    model: str | None
    other_models: tuple[str, ...]
    pools: tuple[DraftPool, ...]
    router: str | None
    kv_bytes_per_token: float | None


def draft_of(examined: Sequence[Examined]) -> Draft:
    """The draft from examined targets; pools by their label, else by evidence."""
    replicas = [each for each in examined if each.is_replica]
    models = Counter(m for e in replicas if e.evidence is not None for m in e.evidence.models)
    ranked = [model for model, _ in models.most_common()]
    pools = tuple(_pools(replicas))
    routers = {
        _ROUTERS[each.evidence.dialect]
        for each in examined
        if each.evidence is not None
        and each.evidence.part is Part.ROUTER
        and each.evidence.dialect in _ROUTERS
    }
    return Draft(
        model=ranked[0] if ranked else None,
        other_models=tuple(ranked[1:]),
        pools=_with_variants(pools),
        router=min(routers) if routers else None,
        kv_bytes_per_token=_kv_bytes_per_token(replicas),
    )


def _pools(replicas: Sequence[Examined]) -> Iterable[DraftPool]:
    groups: dict[tuple[str, Phase | None], list[Examined]] = {}
    for each in replicas:
        phase = each.phase
        name = each.target.pool or ("unknown" if phase is None else str(phase))
        groups.setdefault((name, phase), []).append(each)
    roles = pool_roles(replicas)
    order = {phase: index for index, phase in enumerate((*Phase, None))}
    for (name, phase), members in sorted(groups.items(), key=lambda g: (order[g[0][1]], g[0][0])):
        labelled = members[0].target.declared is not None
        role = roles.get(name)
        evidence = members[0].evidence
        if labelled and role is not None and role.phase is phase:
            known_from = "by its label, and the evidence agrees"
        elif labelled and role is not None and role.phase is not None:
            known_from = f"TODO by its label, but it works as {role.phase}"
        elif labelled:
            known_from = "by its label; there is no evidence yet"
        elif phase is not None and evidence is not None:
            known_from = f"by evidence: {evidence.role.words[0]}"
        else:
            words = evidence.role.words[0] if evidence is not None else "no page"
            known_from = f"TODO prefill, decode or both? {words}"
        yield DraftPool(
            name=_as_name(name),
            phase=phase,
            known_from=known_from,
            replicas=len(members),
            variant="",
            engine=_smallest(
                engine_facts(e.target.page) for e in members if e.target.page is not None
            ),
        )


def _smallest(facts: Iterable[EngineFacts]) -> EngineFacts:
    """Of replicas that differ, the one with the smallest cache: nothing is promised too much."""
    known = list(facts)
    return min(known, key=lambda f: f.kv_capacity_tokens or 0, default=EngineFacts())


def _with_variants(pools: Sequence[DraftPool]) -> tuple[DraftPool, ...]:
    facts = {pool.engine for pool in pools}
    return tuple(
        DraftPool(
            name=pool.name,
            phase=pool.phase,
            known_from=pool.known_from,
            replicas=pool.replicas,
            variant="main" if len(facts) == 1 else pool.name,
            engine=pool.engine,
        )
        for pool in pools
    )


def _kv_bytes_per_token(replicas: Iterable[Examined]) -> float | None:
    """KV bytes that were moved over the prompt tokens that they were of."""
    moved = tokens = 0.0
    for each in replicas:
        if each.target.page is not None:
            moved += total(each.target.page, _MOVED) or 0.0
            tokens += total(each.target.page, _EXTERNAL) or 0.0
    return moved / tokens if moved > 0.0 and tokens > 0.0 else None


def draft_text(draft: Draft) -> str:
    """The document. Values that are known are plain; the others end in `# TODO`."""
    return "\n".join(_lines(draft)) + "\n"


def _lines(draft: Draft) -> Iterable[str]:
    yield "# Written by `phasewise init` from live pages. Look at every TODO, then: phasewise check"
    yield "apiVersion: phasewise.dev/v1alpha1"
    yield "kind: Tier"
    yield "metadata:"
    yield "  name: tier   # TODO how you call it"
    yield "spec:"
    if draft.model is None:
        yield "  model: unknown   # TODO as the engines' pages call it (label model_name)"
    else:
        others = ", ".join(json.dumps(model) for model in draft.other_models)
        also = f"   # TODO also seen: {others}" if others else ""
        yield f"  model: {json.dumps(draft.model)}{also}"
    yield "  slo:"
    yield "    ttftSeconds: 2.0   # TODO what you promise; better a bucket bound of the router"
    yield "    itlSeconds: 0.05   # TODO likewise"
    yield "    attainmentRatio: 0.99   # TODO share of requests that must meet both"
    yield "  variants:"
    for name, pool in {pool.variant: pool for pool in draft.pools}.items():
        yield from _variant_lines(name, pool.engine)
    yield "  pools:"
    for pool in draft.pools:
        yield from _pool_lines(pool)
    yield "  router:"
    if draft.router is None:
        yield "    kind: none   # TODO epp or vllm-router, which tell what users wait"
    else:
        yield f"    kind: {draft.router}"
    if draft.kv_bytes_per_token is not None:
        yield "  kvTransfer:"
        yield (
            f"    bytesPerToken: {draft.kv_bytes_per_token:.0f}"
            "   # moved so far over the prompt tokens received"
        )


def _variant_lines(name: str, engine: EngineFacts) -> Iterable[str]:
    yield f"    - name: {name}"
    yield "      acceleratorType: unknown   # TODO such as NVIDIA-L40S"
    yield "      acceleratorsPerReplica: 1   # TODO tensor x pipeline x data parallel size"
    yield "      engine:"
    yield "        maxNumBatchedTokens: 8192   # TODO vLLM's --max-num-batched-tokens"
    yield "        maxNumSeqs: 256   # TODO vLLM's --max-num-seqs"
    known = (
        ("blockSizeTokens", engine.block_size_tokens, 16, "--block-size"),
        ("maxModelLenTokens", engine.max_model_len_tokens, 32768, "--max-model-len"),
    )
    for key, value, default, flag in known:
        if value is not None:
            yield f"        {key}: {value}"
        else:
            yield f"        {key}: {default}   # TODO vLLM's {flag}"
    if engine.kv_capacity_tokens is not None:
        yield f"        kvCapacityTokens: {engine.kv_capacity_tokens}"


def _pool_lines(pool: DraftPool) -> Iterable[str]:
    yield f"    - name: {pool.name}"
    todo = "# " + pool.known_from
    if pool.phase is None:
        yield f"      phase:   {todo}"
    else:
        yield f"      phase: {pool.phase}   {todo}"
    yield f"      variant: {pool.variant}"
    most = max(2 * pool.replicas, pool.replicas + 1)
    yield f"      replicas: {{min: 1, max: {most}}}   # TODO {pool.replicas} seen now"
    yield "      startup: {seconds: 120}   # TODO wanted to ready, 95 of 100 starts"
    yield "      # scaleTarget: {kind: Deployment, name: …}   # TODO what holds its replicas"


def _as_name(text: str) -> str:
    """A label as a name of the document: lower-case letters, digits, dots and dashes."""
    name = re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip("-.")[:63].strip("-.")
    return name or "pool"
