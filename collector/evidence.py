"""What a page is, told by what stands on it: which program wrote it, and what that replica does.

Labels say what somebody meant a replica to be; the page says what it did. Prefill and decode are
told apart by where prompt tokens came from, how many tokens an answer had, and who pulled KV; too
few finished requests are no evidence. It decides nothing about which series are missing
(`conformance`). What each side of a pair reports was read in vllm-project/vllm 0.32
(Apache-2.0), `vllm/v1/metrics/`, and seen on pages of a running pair.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from collector.exposition import read_page
from collector.roles import Role, Signals, role_of, signals_of
from collector.versions import vllm_versions
from serving.dialects.page import Page, label, total
from serving.types import Phase

_NAME = re.compile(r'^[ \t]*(?:([a-zA-Z_:][a-zA-Z0-9_:]*)|\{[ \t]*"([^"\\]+)")', re.M)
_PARTS = ("_bucket", "_sum", "_count", "_created")
_EPP = (
    *("llm_d_epp_", "llm_d_router_epp_", "llm_d_inference_scheduler_"),
    *("inference_objective_", "inference_model_", "inference_pool_", "inference_extension_"),
)
_MOST_MODELS = 8


class Dialect(StrEnum):
    """Whose names a page speaks."""

    VLLM = "vllm"
    SIMULATOR = "llm-d-inference-sim"
    RAY = "ray"
    DYNAMO = "dynamo"
    EPP = "epp"
    VLLM_ROUTER = "vllm-router"
    NIXL_AGENT = "nixl-agent"
    UNKNOWN = "unknown"


class Part(StrEnum):
    """What a target is in a tier."""

    REPLICA = "replica"
    ROUTER = "router"
    AUTOSCALER = "autoscaler"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a page says about its writer. `engine` in words; `version` a range, `None` if untold.

    `readable` says whether phasewise has a dialect for it. `notes` are traps that were seen.
    """

    dialect: Dialect
    part: Part
    engine: str
    version: str | None
    models: tuple[str, ...]
    signals: Signals
    role: Role
    readable: bool
    notes: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Engine, version and models in one line."""
        version = f" {self.version}" if self.version else ""
        models = f", model {', '.join(self.models)}" if self.models else ""
        return f"{self.engine}{version}{models}"


def read_everything(body: bytes) -> Page:
    """All series of a page, whoever wrote it. Raises `Unavailable` if it cannot be read at all."""
    text = body.decode("utf-8", errors="replace")
    names = frozenset(plain or quoted for plain, quoted in _NAME.findall(text))
    return read_page(body, names)


def series_names(page: Page) -> frozenset[str]:
    """The page's names, those of a histogram's parts under the histogram's own too."""
    names = set(page.samples) | page.broken
    for name in tuple(names):
        for part in _PARTS:
            if name.endswith(part):
                names.add(name.removesuffix(part))
    return frozenset(names)


def evidence_of(page: Page) -> Evidence:
    """What one page is."""
    names = series_names(page)
    dialect = _dialect(page, names)
    signals = signals_of(page)
    part, engine, readable = _writer(dialect, names)
    return Evidence(
        dialect=dialect,
        part=part,
        engine=engine,
        version=vllm_versions(names) if dialect is Dialect.VLLM else None,
        models=_models(page),
        signals=signals,
        role=role_of([signals]) if part is Part.REPLICA else Role(phase=None, words=()),
        readable=readable,
        notes=tuple(_notes(page, names, dialect)),
    )


def _dialect(page: Page, names: frozenset[str]) -> Dialect:
    if _any(names, "dynamo_"):
        return Dialect.DYNAMO
    if _any(names, "ray_vllm_", "ray_vllm:"):
        return Dialect.RAY
    if _any(names, "vllm:"):
        return Dialect.SIMULATOR if _is_simulator(page, names) else Dialect.VLLM
    if _any(names, *_EPP):
        return Dialect.EPP
    if _any(names, "vllm_router_"):
        return Dialect.VLLM_ROUTER
    if names & {"agent_xfer_time_total", "agent_tx_bytes_total", "agent_rx_bytes_total"}:
        return Dialect.NIXL_AGENT
    return Dialect.UNKNOWN


def _is_simulator(page: Page, names: frozenset[str]) -> bool:
    """It misnames one series, and labels finished requests by `finish_reason`."""
    finished = page.samples.get("vllm:request_success_total", {})
    return "vllm:max_num_generation_tokens" in names or any(
        label(labels, "finish_reason") is not None for labels in finished
    )


def _writer(dialect: Dialect, names: frozenset[str]) -> tuple[Part, str, bool]:
    match dialect:
        case Dialect.VLLM:
            return Part.REPLICA, "vLLM", True
        case Dialect.SIMULATOR:
            return Part.REPLICA, "llm-d-inference-sim", True
        case Dialect.RAY:
            return Part.REPLICA, "vLLM through Ray's exporter", False
        case Dialect.DYNAMO if _any(names, "dynamo_planner_"):
            return Part.AUTOSCALER, "Dynamo's planner", False
        case Dialect.DYNAMO if _any(names, "dynamo_frontend_"):
            return Part.ROUTER, "Dynamo's frontend", False
        case Dialect.DYNAMO:
            vllm = _any(names, "vllm:")
            return Part.REPLICA, f"Dynamo worker {'with' if vllm else 'without'} vLLM's names", vllm
        case Dialect.EPP:
            return Part.ROUTER, "llm-d endpoint picker (EPP)", True
        case Dialect.VLLM_ROUTER:
            return Part.ROUTER, "vllm-router", True
        case Dialect.NIXL_AGENT:
            return Part.OTHER, "NIXL agent exporter", False
        case _:
            return Part.OTHER, "nothing that phasewise knows", False


def _models(page: Page) -> tuple[str, ...]:
    found = {
        value
        for name, series in page.samples.items()
        if name.startswith(("vllm:", "dynamo_frontend_", *_EPP))
        for labels in series
        for key, value in labels
        if key in ("model_name", "model") and value
    }
    return tuple(sorted(found)[:_MOST_MODELS])


def _notes(page: Page, names: frozenset[str], dialect: Dialect) -> Iterable[str]:
    if dialect in (Dialect.VLLM, Dialect.SIMULATOR):
        ranks = {label(ls, "engine") for ls in page.samples.get("vllm:num_requests_running", {})}
        if len(ranks) > 1:
            yield f"{len(ranks)} data-parallel ranks on one page; they are added up"
    asleep = total(
        page,
        "vllm:engine_sleep_state",
        keep=lambda ls: label(ls, "sleep_state") in ("weights_offloaded", "discard_all"),
    )
    if asleep:
        yield "the engine sleeps: it is healthy and serves nothing"
    if dialect is Dialect.SIMULATOR:
        yield "a simulated engine: good for wiring, not for judging how many replicas are needed"
    if dialect is Dialect.RAY:
        yield "Ray renames and relabels vLLM's series; scrape the engine's own /metrics instead"
    if dialect is Dialect.NIXL_AGENT:
        yield "not read: the engine's own page tells its transfers (vllm:nixl_*)"
    generations = [prefix for prefix in _EPP[:4] if _any(names, prefix)]
    if len(generations) > 1:
        shown = ", ".join(f"{prefix}*" for prefix in generations)
        yield f"the same numbers under several names ({shown}): a regex over them counts twice"
    components = {
        value
        for name, series in page.samples.items()
        if name.startswith("dynamo_component_")
        for labels in series
        for key, value in labels
        if key == "dynamo_component"
    }
    if components:
        yield f"Dynamo calls it {', '.join(sorted(components))}"


def _any(names: Iterable[str], *prefixes: str) -> bool:
    return any(name.startswith(prefixes) for name in names)


def contradiction(declared: Phase | None, role: Role) -> str | None:
    """What is wrong with a label if the evidence says the other phase; `None` if nothing is.

    Doing both kinds of work contradicts nothing: decode computes short prompts itself where a
    router decides so, and an aggregated replica may do one kind only for a while.
    """
    if Phase.BOTH in (declared, role.phase) or None in (declared, role.phase):
        return None
    if declared is role.phase:
        return None
    return f"labelled {declared}, but it works as {role.phase}: {role.words[0]}"
