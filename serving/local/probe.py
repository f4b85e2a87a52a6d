"""Runs a probe: one side or both in the engine environment, which end whatever comes.

What they report is read from a file as they go; what NIXL and UCX say is kept for the judgement.
Every fault is one sentence (`Misconfigured`), and nothing runs on after it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.local.probe_side import ProbeRequest, Side, misfit
from serving.local.probe_verdict import Case, Machines, case_of, machines_of
from serving.local.ucx_words import protocol_tables

_POLL_S = 0.05
_GRACE_S = 3.0  # beyond the limit that a side keeps by itself

Report = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFound:
    """What was measured, where the two sides are, and why a backend is not among it."""

    machines: Machines
    cases: tuple[Case, ...]
    not_loaded: dict[str, str]
    agent_s: dict[str, float]


def _until(
    sides: Sequence[Side],
    done: Callable[[], bool],
    *,
    limit_s: float,
    report: Report,
    told: Side,
) -> None:
    """Wait until `done`, or until a side failed or the time is over, which is an error."""
    end_s = time.monotonic() + limit_s + _GRACE_S
    while True:
        for side in sides:
            news = side.hear()
            if side is told:
                for event in news:
                    report(event)
        if done():
            return
        if any(side.code is not None and side.first("done") is None for side in sides):
            time.sleep(4 * _POLL_S)  # the other one may be about to say why
            _fail(sides)
        if time.monotonic() > end_s:
            raise misfit(
                "the probe did not end in time",
                found=f"nothing after {limit_s:g} s",
                expected="smaller or fewer transfers, or a longer --limit",
            )
        time.sleep(_POLL_S)


def _fail(sides: Sequence[Side]) -> None:
    for side in sides:
        side.hear()
    faults = [
        f"{side.name}: {side.fault()}"
        for side in sides
        if side.code is not None and side.first("done") is None
    ]
    raise misfit(
        "the probe failed",
        found="; ".join(faults),
        expected="transfers between two sides that both run",
    )


def _plain(values: Sequence[object]) -> str:
    return ",".join(str(value) for value in values)


def _found(initiator: Side) -> ProbeFound:
    tables = protocol_tables(initiator.words())
    machines = initiator.first("machines")
    return ProbeFound(
        machines=Machines(same=None) if machines is None else machines_of(machines),
        cases=tuple(case_of(e, tables) for e in initiator.said if e["event"] == "case"),
        not_loaded={
            str(e["backend"]): str(e["why"]) for e in initiator.said if e["event"] == "no_backend"
        },
        agent_s={
            str(e["backend"]): float(e["created_s"])
            for e in initiator.said
            if e["event"] == "backend"
        },
    )


def _initiator_arguments(request: ProbeRequest, to: str) -> list[str]:
    return [
        *("--to", to),
        *("--backends", _plain(request.backends)),
        *("--operations", _plain(request.operations)),
        *("--sizes", _plain(request.sizes)),
        *("--handles", _plain(request.handles)),
        *("--repetitions", str(request.repetitions)),
    ]


def run_probe(request: ProbeRequest, *, to: str | None, report: Report) -> ProbeFound:
    """Measure against the side that listens at `to`; without it, both sides run here."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="phasewise-probe-")))
        sides: list[Side] = []
        if to is None:
            holder = Side(request, folder, "holder", ["--listen", "127.0.0.1:0"])
            stack.callback(holder.end)
            sides.append(holder)
            _until(
                sides,
                lambda: holder.first("listening") is not None,
                limit_s=60.0,
                report=report,
                told=holder,
            )
            to = f"127.0.0.1:{(holder.first('listening') or {})['port']}"
        initiator = Side(request, folder, "initiator", _initiator_arguments(request, to))
        stack.callback(initiator.end)
        sides.append(initiator)
        _until(
            sides,
            lambda: initiator.first("done") is not None,
            limit_s=request.limit_s,
            report=report,
            told=initiator,
        )
        return _found(initiator)


def serve_probe(request: ProbeRequest, *, listen: str, report: Report) -> None:
    """Be the side that another machine's probe measures against, once."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="phasewise-probe-")))
        holder = Side(request, folder, "holder", ["--listen", listen])
        stack.callback(holder.end)
        _until(
            [holder],
            lambda: holder.first("done") is not None,
            limit_s=request.limit_s,
            report=report,
            told=holder,
        )
