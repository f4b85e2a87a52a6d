"""What a probe found, for a person and for a program: a table, sentences, lines for the tier, JSON.

Judging is in `serving.local.probe_verdict`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from serving.local.probe import ProbeFound
from serving.local.probe_verdict import (
    Capacity,
    Case,
    Judgement,
    capacity,
    capacity_yaml,
    judge,
    largest,
    named,
)
from serving.local.ucx_words import PathKind

_COLUMNS: tuple[tuple[str, Literal["left", "right"]], ...] = (
    ("transfer", "left"),
    ("size", "right"),
    ("at once", "right"),
    ("median", "right"),
    ("p10-p90", "right"),
    ("by NIXL", "right"),
    ("n", "right"),
    ("first", "right"),
    ("over", "left"),
)


def size_words(size: int) -> str:
    """A size in the largest unit that it is a whole number of."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size % scale == 0:
            return f"{size // scale} {unit}"
    return f"{size:,} bytes"


def rate_words(bytes_per_s: float | None) -> str:
    """A rate in GB/s (1e9 bytes), to two digits at least."""
    if bytes_per_s is None:
        return "unknown"
    giga = bytes_per_s / 1e9
    return f"{giga:.2f}" if giga >= 0.1 else f"{giga:.3g}"


def table(cases: tuple[Case, ...]) -> Table:
    """One row for each case; rates in GB/s."""
    drawn = Table(
        title="NIXL transfers, memory to memory, GB/s",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for heading, justify in _COLUMNS:
        drawn.add_column(heading, justify=justify, no_wrap=True)
    for case in cases:
        rate = case.bytes_per_s
        drawn.add_row(
            f"{case.backend} {case.operation.lower()}",
            size_words(case.transfer_bytes),
            str(case.handles),
            rate_words(rate.median),
            f"{rate_words(rate.p10)}-{rate_words(rate.p90)}",
            rate_words(case.nixl_bytes_per_s),
            str(case.repetitions),
            f"{case.first_s * 1000:,.1f} ms",
            named(case.over),
        )
    return drawn


def judged(
    found: ProbeFound, ucx_tls: str | None
) -> list[tuple[str, Case, Judgement, Capacity | None]]:
    """For each backend its standing case, the judgement and the capacity."""
    rows = []
    for backend in dict.fromkeys(case.backend for case in found.cases):
        case = largest([c for c in found.cases if c.backend == backend])
        if case is not None:
            verdict = judge(case.over, found.machines, ucx_tls=ucx_tls)
            rows.append((backend, case, verdict, capacity(case)))
    return rows


def show(found: ProbeFound, console: Console, *, ucx_tls: str | None) -> None:
    """The table, then for each backend what it went over and what that means."""
    console.print(table(found.cases))
    console.print("Every byte of every transfer was checked. The first transfer is in no rate.")
    for backend, why in found.not_loaded.items():
        console.print(Text(f"{backend} was not measured: {why}"))
    for backend, case, verdict, network in judged(found, ucx_tls):
        style = "yellow" if verdict.is_fallback else ""
        console.print(Text(f"\n{backend}: {verdict.words}", style=style))
        if case.over.evidence:
            console.print(Text(f"  UCX says: {case.over.evidence}", style="dim"))
        if network is not None:
            console.print(Text(f"For the tier file:\n{capacity_yaml(network)}"), soft_wrap=True)
        elif case.over.kind is PathKind.SHARED_MEMORY:
            console.print("No network capacity for the tier file: this is not the network's.")
        else:
            console.print("No network capacity for the tier file: what it went over is not known.")


def told(found: ProbeFound, *, ucx_tls: str | None) -> dict[str, Any]:
    """Everything that was found, as JSON; `null` is not known."""
    return {
        "same_machine": found.machines.same,
        "rdma_devices": [*found.machines.rdma_devices, *found.machines.efa_devices],
        "ucx_tls": ucx_tls,
        "agent_s": found.agent_s,
        "not_loaded": found.not_loaded,
        "cases": [asdict(case) for case in found.cases],
        "verdicts": {
            backend: {
                "over": str(case.over.kind),
                "words": verdict.words,
                "is_fallback": verdict.is_fallback,
                "evidence": case.over.evidence or None,
                "bytes_per_second_per_replica": None if network is None else network.bytes_per_s,
            }
            for backend, case, verdict, network in judged(found, ucx_tls)
        },
    }
