"""What a probe found, judged: rates, what they went over, whether that is a fallback, the capacity.

Rates are bytes per second of the wall clock, from the first post to the last end of the transfers
in flight together. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.local.ucx_words import Carried, PathKind, ProtocolTable, carried

_LOOPBACK = "lo"
_EFA_DRIVER = "efa"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A median and the two deciles beside it."""

    p10: float
    median: float
    p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One size and number of transfers in flight. `first_s` is the warm-up, in no rate.

    `nixl_bytes_per_s` is the median by NIXL's own telemetry, `None` where that cannot be.
    """

    backend: str
    operation: str
    transfer_bytes: int
    handles: int
    repetitions: int
    first_s: float
    bytes_per_s: Spread
    nixl_bytes_per_s: float | None
    over: Carried


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Where the two sides are; `None` where that is not known. RDMA devices are of both."""

    same: bool | None
    rdma_devices: tuple[str, ...] = ()
    efa_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What it went over in a sentence, and whether that is less than what is there.

    `is_fallback` is `None` where it cannot be told.
    """

    words: str
    is_fallback: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The network's capacity for the tier file, and of which case it is."""

    bytes_per_s: int
    words: str


def quantile(values: Sequence[float], share: float) -> float:
    """A quantile by straight lines between the sorted values; there must be one."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def spread(values: Sequence[float]) -> Spread:
    """Median and deciles; of few values the deciles lie close to the least and the most."""
    return Spread(
        p10=quantile(values, 0.1), median=quantile(values, 0.5), p90=quantile(values, 0.9)
    )


def machines_of(event: Mapping[str, Any]) -> Machines:
    """Where the two sides are, by what each said of itself."""
    devices = [*event["here"].get("rdma", ()), *event["there"].get("rdma", ())]
    names = [str(device.get("name")) for device in devices]
    efa = [str(d.get("name")) for d in devices if _EFA_DRIVER in str(d.get("driver"))]
    same = event.get("same_machine")
    return Machines(
        same=same if isinstance(same, bool) else None,
        rdma_devices=tuple(dict.fromkeys(name for name in names if name not in efa)),
        efa_devices=tuple(dict.fromkeys(efa)),
    )


def case_of(event: Mapping[str, Any], tables: Sequence[ProtocolTable]) -> Case:
    """One measured case of a probe's own words; UCX's tables say what it went over."""
    size, handles = int(event["bytes"]), int(event["handles"])
    total = size * handles
    backend, operation = str(event["backend"]), str(event["operation"])
    seconds = [float(each) for each in event["seconds"]]
    told = [float(each) for each in event["nixl_seconds"]]
    sound = list(event["nixl_bytes"]) == [total] and all(each > 0.0 for each in told)
    over = carried(tables, operation, size) if backend == "UCX" else Carried(kind=PathKind.UNKNOWN)
    return Case(
        backend=backend,
        operation=operation,
        transfer_bytes=size,
        handles=handles,
        repetitions=len(seconds),
        first_s=float(event["first_s"]),
        bytes_per_s=spread([total / each for each in seconds]),
        nixl_bytes_per_s=total / quantile(told, 0.5) if told and sound else None,
        over=over,
    )


def largest(cases: Sequence[Case]) -> Case | None:
    """The case that stands for the link: of the largest transfers, the one with the best median.

    Reads before writes where both were measured: decode engines pull their KV.
    """
    return max(
        cases,
        key=lambda c: (c.operation == "READ", c.transfer_bytes, c.bytes_per_s.median),
        default=None,
    )


def named(over: Carried) -> str:
    """The kind, with the devices or the way where they say more."""
    if over.kind is PathKind.UNKNOWN:
        lanes = ", ".join(over.transports)
        return f"unknown ({lanes})" if lanes else "unknown"
    if over.kind is PathKind.SHARED_MEMORY:
        return f"{over.kind} ({', '.join(over.transports)})"
    return f"{over.kind} over {', '.join(over.devices)}" if over.devices else str(over.kind)


def judge(over: Carried, machines: Machines, *, ucx_tls: str | None) -> Judgement:
    """Whether a faster way that is there was not taken.

    `ucx_tls` is what a person asked UCX to use: what was asked for is no fallback.
    """
    better = machines.efa_devices + machines.rdma_devices
    one_host = machines.same if machines.same is not None else over.one_host
    what = named(over)
    asked = "" if ucx_tls is None else f", as UCX_TLS={ucx_tls} asks for"
    if over.kind is PathKind.UNKNOWN:
        return Judgement(
            words="What it went over cannot be told: "
            + ("the lanes are of no known kind" if over.transports else "nothing was said of it")
            + ".",
            is_fallback=None,
        )
    if over.kind is PathKind.SHARED_MEMORY:
        return Judgement(
            words=f"It went over {what}{asked}: what to expect of two processes on one machine. "
            "It says nothing of the network.",
            is_fallback=False,
        )
    if over.kind is not PathKind.TCP:
        return Judgement(words=f"It went over {what}{asked}.", is_fallback=False)
    if ucx_tls is not None:
        return Judgement(words=f"It went over {what}{asked}.", is_fallback=False)
    if one_host is None:
        return Judgement(
            words=f"It went over {what}; whether both sides are on one machine is not known.",
            is_fallback=None,
        )
    if one_host:
        return Judgement(
            words=f"It went over {what}, though both sides are on one machine: it fell back from "
            "shared memory, which the two processes may not have in common (containers?).",
            is_fallback=True,
        )
    if better:
        return Judgement(
            words=f"It went over {what}, though there are RDMA devices ({', '.join(better)}): "
            "it fell back to TCP.",
            is_fallback=True,
        )
    return Judgement(
        words=f"It went over {what}: no RDMA device is here or there, so TCP is what there is.",
        is_fallback=False,
    )


def capacity(case: Case) -> Capacity | None:
    """What the tier file may say of the network; `None` where it is not the network's figure."""
    if case.over.kind in (PathKind.UNKNOWN, PathKind.SHARED_MEMORY, PathKind.GPU_LINK):
        return None
    words = (
        f"median of {case.repetitions} x {case.handles} {case.operation.lower()}s of "
        f"{case.transfer_bytes:,} bytes, {named(case.over)}"
    )
    if set(case.over.devices) == {_LOOPBACK}:
        words += " (the loopback: only for a tier that is all on this machine)"
    return Capacity(bytes_per_s=round(case.bytes_per_s.median), words=words)


def capacity_yaml(found: Capacity) -> str:
    """The lines for the tier file."""
    return (
        "spec:\n"
        "  kvTransfer:\n"
        f"    bytesPerSecondPerReplica: {found.bytes_per_s}  # {found.words}\n"
    )
