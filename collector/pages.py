"""From fetched pages to readings, each in its own dialect; what cannot be read becomes a problem.

It decides nothing about what a reading is worth: that needs the pages before it (`observe`).
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collector.discovery import RouterTarget
from collector.exposition import read_page
from serving.dialects import epp, vllm, vllm_router
from serving.errors import Unavailable
from serving.types import Phase, ReplicaReading, RouterReading


def read_replicas(
    bodies: Mapping[str, bytes | Unavailable], *, phases: Mapping[str, Phase], at_s: float
) -> tuple[dict[str, ReplicaReading], dict[str, str]]:
    """The readings by replica name, and for the others why there is none.

    Bodies of names without a phase (the routers') are left alone.
    """
    readings: dict[str, ReplicaReading] = {}
    problems: dict[str, str] = {}
    for name, phase in phases.items():
        body = bodies.get(name)
        if body is None:
            continue
        try:
            page = read_page(_bytes(body), vllm.WANTED)
            readings[name] = vllm.replica_reading(page, replica=name, at_s=at_s, phase=phase)
        except Unavailable as problem:
            problems[name] = problem.what
    return readings, problems


def read_router(
    bodies: Mapping[str, bytes | Unavailable],
    *,
    routers: Sequence[RouterTarget],
    at_s: float,
    model: str | None = None,
) -> tuple[RouterReading | None, str | None]:
    """The front end's reading, or why there is none; both `None` if the tier has no router.

    A tier with several routers is read at its first: sums over routers are not made here.
    """
    for router in routers:
        body = bodies.get(router.name)
        if body is None:
            continue
        try:
            return _router_reading(_bytes(body), router, at_s=at_s, model=model), None
        except Unavailable as problem:
            return None, problem.what
    return None, None


def _router_reading(
    body: bytes, router: RouterTarget, *, at_s: float, model: str | None
) -> RouterReading:
    match router.dialect:
        case "epp":
            return epp.router_reading(read_page(body, epp.WANTED), at_s=at_s, model=model)
        case "vllm-router":
            return vllm_router.router_reading(read_page(body, vllm_router.WANTED), at_s=at_s)
        case _:
            raise Unavailable(f"{router.name}: no dialect is called {router.dialect!r}")


def _bytes(body: bytes | Unavailable) -> bytes:
    if isinstance(body, Unavailable):
        raise body
    return body
