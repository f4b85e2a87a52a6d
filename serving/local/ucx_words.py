"""What UCX says of itself, read: over which transports and devices an operation goes.

With `UCX_PROTO_INFO=y` UCX prints a table for each operation between two endpoints, the first time
that it chooses how to do it: for every range of message sizes a description ("zero-copy") and the
lanes ("cma/memory", "52% on tcp/lo and 48% on tcp/eth0"). Only those tables tell what really
carries the bytes: the line that lists an endpoint's lanes also names ones that are only there for
wire-up. Endpoints to oneself ("self cfg") carry nothing between processes and are passed over.
Names of transports as of UCX 1.23 (openucx.readthedocs.io, FAQ; BSD-3-Clause).
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class PathKind(StrEnum):
    """What bytes went over."""

    SHARED_MEMORY = "shared memory"
    TCP = "TCP"
    RDMA = "RDMA"
    EFA = "EFA"
    GPU_LINK = "a link between GPUs"
    UNKNOWN = "unknown"


_KINDS = {
    **dict.fromkeys(("cma", "knem", "xpmem", "sysv", "posix", "mm"), PathKind.SHARED_MEMORY),
    "tcp": PathKind.TCP,
    **dict.fromkeys(("rc", "ud", "dc", "gga", "ib"), PathKind.RDMA),
    "srd": PathKind.EFA,
    **dict.fromkeys(("cuda", "gdr", "rocm", "ze"), PathKind.GPU_LINK),
}
_OPERATIONS = {"READ": "remote memory read", "WRITE": "remote memory write"}
_ROW = re.compile(r"\|(?P<cells>.*)\|\s*$")
_ENDPOINT = re.compile(r"(?P<where>inter-node|intra-node|self) cfg#\d+")
_RANGE = re.compile(r"^(\d+)([KMG]?)(?:\.\.(?:(\d+)([KMG]?)|(inf)))?$")
_LANE = re.compile(r"\b([a-z][a-z0-9_]*)/([A-Za-z0-9_.@-]+(?::\d+)?)")
_SCALE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """How messages of a range of sizes go; `most_bytes` is `None` where there is no upper end."""

    least_bytes: int
    most_bytes: int | None
    description: str
    lanes: str

    def holds(self, size: int) -> bool:
        """Whether a message of that size is of this range."""
        return self.least_bytes <= size and (self.most_bytes is None or size <= self.most_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolTable:
    """One operation between two endpoints. `one_host` is UCX's own view of where they are."""

    one_host: bool
    operation: str
    rungs: tuple[Rung, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What carried the messages of one size, and the words that say so."""

    kind: PathKind
    transports: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    one_host: bool | None = None
    evidence: str = ""


def _cells(line: str) -> list[str] | None:
    found = _ROW.search(line)
    if found is None:
        return None
    # the part before a table's first bar is the log's own prefix
    return [cell.strip() for cell in found["cells"].split("|")]


def _rung(cells: list[str]) -> Rung | None:
    found = _RANGE.match(cells[0]) if len(cells) == 3 else None
    if found is None:
        return None
    low, low_unit, high, high_unit, endless = found.groups()
    least = int(low) * _SCALE[low_unit]
    most = int(high) * _SCALE[high_unit] if high is not None else None if endless else least
    return Rung(least_bytes=least, most_bytes=most, description=cells[1], lanes=cells[2])


def protocol_tables(lines: Iterable[str]) -> tuple[ProtocolTable, ...]:
    """Every table between two processes, in the order in which UCX chose."""
    found: list[ProtocolTable] = []
    where, operation = None, ""
    rungs: list[Rung] = []

    def close() -> None:
        if where in ("inter-node", "intra-node") and rungs:
            found.append(
                ProtocolTable(
                    one_host=where == "intra-node", operation=operation, rungs=tuple(rungs)
                )
            )
        rungs.clear()

    for line in lines:
        cells = _cells(line)
        if cells is None:
            continue
        if len(cells) == 1:
            endpoint = _ENDPOINT.search(cells[0])
            if endpoint is not None:
                close()
                where, operation = endpoint["where"], ""
            else:
                operation = cells[0]
        elif (rung := _rung(cells)) is not None:
            rungs.append(rung)
    close()
    return tuple(found)


def kind_of(transport: str) -> PathKind:
    """The kind of a transport by UCX's name of it, such as `rc_mlx5`."""
    return _KINDS.get(transport.split("_")[0], PathKind.UNKNOWN)


def carried(tables: Iterable[ProtocolTable], operation: str, size: int) -> Carried:
    """What a READ or WRITE of that size went over: the last choice that UCX told.

    Unknown where it told none, or lanes of more than one kind.
    """
    heading = _OPERATIONS[operation]
    chosen = [
        (table, rung)
        for table in tables
        if table.operation.startswith(heading)
        for rung in table.rungs
        if rung.holds(size)
    ]
    if not chosen:
        return Carried(kind=PathKind.UNKNOWN)
    table, rung = chosen[-1]
    lanes = _LANE.findall(rung.lanes)
    kinds = {kind_of(transport) for transport, _ in lanes}
    return Carried(
        kind=kinds.pop() if len(kinds) == 1 else PathKind.UNKNOWN,
        transports=tuple(dict.fromkeys(transport for transport, _ in lanes)),
        devices=tuple(dict.fromkeys(device for _, device in lanes if device != "memory")),
        one_host=table.one_host,
        evidence=f"{table.operation}: {rung.description} {rung.lanes}",
    )
