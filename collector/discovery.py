"""Which replicas there are: from a Prometheus http_sd endpoint, or from a fixed list.

It reads the labels that phasewise's tiers give to their targets; it does not fetch pages. Format of
the list: https://prometheus.io/docs/prometheus/latest/http_sd/.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from collector.observe import Member
from collector.scrape import Scraper, Target
from serving.errors import Misconfigured, Unavailable
from serving.start_labels import Stages, read_stages
from serving.types import Phase, ReplicaState, StartKind, StartStage

E = TypeVar("E", ReplicaState, Phase, StartStage, StartKind)
META = "__meta_phasewise_"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterTarget:
    """A router's page and the dialect that it speaks: `epp` or `vllm-router`."""

    name: str
    url: str
    dialect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
    """What there is now.

    `targets` are the pages of replicas that should answer: ready and draining ones. `stages` says
    how far each starting replica is, where that is known.
    """

    members: Mapping[str, Member] = field(default_factory=dict)
    phases: Mapping[str, Phase] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    routers: tuple[RouterTarget, ...] = ()
    stages: Mapping[str, StartStage] = field(default_factory=dict)

    @property
    def pages(self) -> tuple[Target, ...]:
        """All pages to fetch: the replicas' and the routers'."""
        return (*self.targets, *(Target(name=r.name, url=r.url) for r in self.routers))

    def count(self, pool: str, state: ReplicaState) -> int:
        """How many replicas of a pool are in a state."""
        return sum(1 for m in self.members.values() if m.pool == pool and m.state is state)

    def starting_since_s(self, pool: str) -> tuple[float, ...]:
        """When each starting replica of a pool was asked for, oldest first, where that is known."""
        return tuple(
            sorted(
                member.created_s
                for member in self.members.values()
                if member.pool == pool
                and member.state is ReplicaState.STARTING
                and member.created_s is not None
            )
        )


async def discover(scraper: Scraper, url: str) -> Discovered:
    """Ask an http_sd endpoint. Raises `Unavailable` if it does not answer, or not with a list."""
    body = await scraper.fetch(url)
    if isinstance(body, Unavailable):
        raise body
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unavailable(f"{url}: the list of targets is not JSON: {str(error)[:120]}") from error
    return read_groups(document, where=url)


def read_groups(document: object, *, where: str = "http_sd") -> Discovered:
    """Replicas and routers of an http_sd document.

    Raises `Unavailable` for anything that is not one: half a list of replicas would look like a
    pool that shrank.
    """
    if not isinstance(document, list):
        raise Unavailable(f"{where}: expected a list of groups, found {type(document).__name__}")
    members: dict[str, Member] = {}
    phases: dict[str, Phase] = {}
    targets: list[Target] = []
    routers: list[RouterTarget] = []
    stages: dict[str, StartStage] = {}
    for index, group in enumerate(document):
        place = f"{where}: group {index}"
        address, labels = _group(group, place)
        url = _page_url(address, labels)
        dialect = labels.get(f"{META}router")
        if dialect is not None:
            name = labels.get("router", f"router-{len(routers)}" if routers else "router")
            routers.append(RouterTarget(name=name, url=url, dialect=dialect))
            continue
        name = _needed(labels, "replica", place)
        if name in members:
            raise Unavailable(f"{place}: replica {name!r} is listed twice")
        state = _one_of(ReplicaState, _needed(labels, "state", place), place)
        phases[name] = _one_of(Phase, _needed(labels, "phase", place), place)
        members[name] = Member(
            pool=_needed(labels, "pool", place),
            state=state,
            created_s=_seconds(labels.get(f"{META}created_s"), place),
            start_kind=_kind(labels, "start_kind", place),
            start_stages=_stages(labels.get(f"{META}start_stages", ""), place),
            next_start=_kind(labels, "next_start", place),
        )
        if state is not ReplicaState.STARTING:
            targets.append(Target(name=name, url=url))
        elif labels.get(f"{META}stage"):
            stages[name] = _one_of(StartStage, labels[f"{META}stage"], place)
    _distinct([router.name for router in routers], members, where)
    _agree(members, where)
    return Discovered(
        members=members,
        phases=phases,
        targets=tuple(targets),
        routers=tuple(routers),
        stages=stages,
    )


def _distinct(routers: Sequence[str], members: Mapping[str, Member], where: str) -> None:
    """Pages are told apart by name: a router must not share a replica's or another router's."""
    for index, name in enumerate(routers):
        if name in members:
            raise Unavailable(f"{where}: a router and a replica are both named {name!r}")
        if name in routers[:index]:
            raise Unavailable(f"{where}: router {name!r} is listed twice")


def _agree(members: Mapping[str, Member], where: str) -> None:
    """The next start is a pool's: of its replicas one may be silent, none may say otherwise."""
    said: dict[str, StartKind] = {}
    for member in members.values():
        if member.next_start is None:
            continue
        if said.setdefault(member.pool, member.next_start) is not member.next_start:
            raise Unavailable(
                f"{where}: replicas of pool {member.pool!r} differ about what the next start is"
            )


def static(
    replicas: Iterable[tuple[Target, str, Phase]], *, routers: Iterable[RouterTarget] = ()
) -> Discovered:
    """A fixed list of replicas, each with its pool and phase: all count as ready."""
    listed = tuple(replicas)
    return Discovered(
        members={t.name: Member(pool=pool, state=ReplicaState.READY) for t, pool, _ in listed},
        phases={target.name: phase for target, _, phase in listed},
        targets=tuple(target for target, _, _ in listed),
        routers=tuple(routers),
    )


def _group(group: object, place: str) -> tuple[str, dict[str, str]]:
    """The one address of a group and its labels, all of them strings."""
    if not isinstance(group, dict):
        raise Unavailable(f"{place}: expected an object, found {type(group).__name__}")
    targets, labels = group.get("targets"), group.get("labels", {})
    if not (isinstance(targets, list) and len(targets) == 1 and isinstance(targets[0], str)):
        raise Unavailable(f"{place}: expected one target, found {str(targets)[:80]}")
    if not (isinstance(labels, dict) and all(isinstance(v, str) for v in labels.values())):
        raise Unavailable(f"{place}: expected labels that are strings, found {str(labels)[:80]}")
    return targets[0], labels


def _page_url(address: str, labels: Mapping[str, str]) -> str:
    scheme, path = labels.get("__scheme__", "http"), labels.get("__metrics_path__", "/metrics")
    return f"{scheme}://{address}{path}"


def _needed(labels: Mapping[str, str], name: str, place: str) -> str:
    value = labels.get(f"{META}{name}") or labels.get(name)
    if not value:
        raise Unavailable(f"{place}: the label {META}{name} is missing")
    return value


def _seconds(text: str | None, place: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Unavailable(f"{place}: expected a Unix time, found {text[:40]!r}")
    return value


def _kind(labels: Mapping[str, str], name: str, place: str) -> StartKind | None:
    text = labels.get(f"{META}{name}")
    return _one_of(StartKind, text, place) if text else None


def _stages(text: str, place: str) -> Stages:
    try:
        return read_stages(text)
    except Misconfigured as error:
        raise Unavailable(
            f"{place}: {error.what}: found {error.found}, expected {error.expected}"
        ) from error


def _one_of(kind: type[E], text: str, place: str) -> E:
    try:
        return kind(text)
    except ValueError as error:
        known = ", ".join(kind)
        raise Unavailable(f"{place}: expected one of {known}, found {text[:40]!r}") from error
