"""The doctor's words: a report for a terminal of any width, and the same as JSON.

Long names fold, nothing is cut off. Decides what is shown, not what is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from collector.conformance import Fault, Finding
from collector.costs import Weight
from phasewise.doctor_targets import Check, Diagnosis, Examined

_MARKS = {True: ("ok", "green"), False: ("bad", "red"), None: ("?", "yellow")}
_MOST_NAMES = 6


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """The whole report, the verdict last."""
    for group in _groups(diagnosis.targets):
        console.print(_head(group))
        console.print(Padding(_body(group[0], several=len(group) > 1), (0, 0, 1, 2)))
    if diagnosis.checks:
        console.print(Text("besides", style="bold"))
        console.print(Padding(_checks(diagnosis.checks), (0, 0, 1, 2)))
    verdict = "the loop can run" if diagnosis.can_run else "the loop cannot run"
    console.print(
        Text(f"{verdict}: ", style="bold green" if diagnosis.can_run else "bold red")
        + Text(diagnosis.why, style="not bold"),
        overflow="fold",
    )


def _groups(targets: Iterable[Examined]) -> list[list[Examined]]:
    """Replicas of a pool about which there is the same to say are said once."""
    groups: dict[object, list[Examined]] = {}
    for index, each in enumerate(targets):
        key: object = index
        if each.target.pool is not None:
            seen = each.evidence
            what = None if seen is None else (seen.engine, seen.version, seen.models, seen.notes)
            key = (each.target.pool, what, each.conformance, _kinds(each), each.advice)
        groups.setdefault(key, []).append(each)
    return list(groups.values())


def _kinds(each: Examined) -> tuple[object, ...]:
    """What is wrong without its figures, which differ from replica to replica."""
    role = None if each.evidence is None else each.evidence.role.phase
    return (role, each.target.starting, len(each.wrong), bool(each.target.still))


def _head(group: Sequence[Examined]) -> Text:
    names = [each.target.name for each in group]
    shown = ", ".join(names[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        shown += f" and {len(names) - _MOST_NAMES} more"
    pool = group[0].target.pool
    return Text(f"{pool}: {shown}" if pool is not None else shown, style="bold")


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0), expand=False)
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    return grid


def _body(each: Examined, *, several: bool) -> Table:
    grid = _grid()
    seen, conformance = each.evidence, each.conformance
    if each.target.starting:
        grid.add_row("what", Text("a replica that starts: no page yet"))
    if seen is not None:
        grid.add_row("what", Text(seen.words))
        if each.is_replica:
            whose = f" (figures of {each.target.name})" if several else ""
            told = seen.role.phase
            role = seen.role.words if told is None else (f"{told}{whose}", *seen.role.words)
            grid.add_row("role", Text("\n".join(role)))
        for note in seen.notes:
            grid.add_row("note", Text(note))
    if conformance is not None:
        count = f"{conformance.present} of {conformance.expected} that are read are there"
        grid.add_row("series", Text(count))
        for mend, merged in _by_mend(_merged(conformance.findings)).items():
            for findings in merged:
                grid.add_row(str(findings[0].weight), _finding_text(findings))
            grid.add_row("mend", Text(mend, style="cyan"))
        small = sorted({f.name for f in conformance.findings if f.weight is Weight.NICE})
        if small:
            grid.add_row("nice", Text(f"not there, at little cost: {', '.join(small)}"))
        for old in conformance.old_names:
            costs = f"\nblind: {old.costs}" if old.costs else ""
            grid.add_row("old name", Text(f"{old.name}: {old.words}{costs}"))
            if old.mend:
                grid.add_row("mend", Text(old.mend, style="cyan"))
    needed = () if conformance is None else conformance.findings
    said = tuple(f"{f.name} is" for f in needed if f.weight is Weight.NEEDED)
    for words in (words for words in each.wrong if not (said and words.startswith(said))):
        grid.add_row("wrong", Text(words, style="red"))
    for words in each.advice:
        grid.add_row("advice", Text(words, style="yellow"))
    return grid


def _merged(findings: Iterable[Finding]) -> list[list[Finding]]:
    """By series: one series may fill several of our words. What costs little is left to a line."""
    by_name: dict[tuple[str, Fault], list[Finding]] = {}
    for finding in findings:
        if finding.weight is not Weight.NICE or finding.fault is Fault.NEGATIVE_SUM:
            by_name.setdefault((finding.name, finding.fault), []).append(finding)
    return list(by_name.values())


def _by_mend(merged: Iterable[list[Finding]]) -> dict[str, list[list[Finding]]]:
    """What one line mends stands together, what is needed first."""
    groups: dict[str, list[list[Finding]]] = {}
    for findings in merged:
        groups.setdefault(findings[0].mend, []).append(findings)
    return groups


def _finding_text(findings: Sequence[Finding]) -> Text:
    first = findings[0]
    lines = [f"{first.name}: {first.fault}", f"blind: {'; '.join(f.blind for f in findings)}"]
    empty = [name for finding in findings for name in finding.recorded]
    if empty:
        lines.append(f"empty: {', '.join(empty)}")
    return Text("\n".join(lines))


def _checks(checks: Iterable[Check]) -> Table:
    grid = _grid()
    for check in checks:
        mark, style = _MARKS[check.ok]
        grid.add_row(Text(mark, style=style), Text(f"{check.what}: {check.words}"))
    return grid


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The same, for programs. What is not known is null."""
    return {
        "source": diagnosis.source,
        "can_run": diagnosis.can_run,
        "why": diagnosis.why,
        "targets": [_target_json(each) for each in diagnosis.targets],
        "checks": [
            {"what": c.what, "ok": c.ok, "words": c.words, "stops": c.stops}
            for c in diagnosis.checks
        ],
    }


def _target_json(each: Examined) -> dict[str, Any]:
    seen, conformance, target = each.evidence, each.conformance, each.target
    found: dict[str, Any] = {
        "name": target.name,
        "where": target.where,
        "pool": target.pool,
        "labelled_phase": target.declared,
        "usable": each.usable if each.is_replica else None,
        "starting": target.starting,
        "wrong": list(each.wrong),
        "advice": list(each.advice),
        "identity": None,
        "series": None,
    }
    if seen is not None:
        found["identity"] = {
            "part": seen.part,
            "engine": seen.engine,
            "dialect": seen.dialect,
            "version": seen.version,
            "models": list(seen.models),
            "phase": seen.role.phase,
            "evidence": list(seen.role.words),
            "notes": list(seen.notes),
        }
    if conformance is not None:
        found["series"] = {
            "present": conformance.present,
            "expected": conformance.expected,
            "findings": [
                {
                    "name": f.name,
                    "fault": f.fault,
                    "weight": f.weight,
                    "blind": f.blind,
                    "empty": list(f.recorded),
                    "mend": f.mend,
                }
                for f in conformance.findings
            ],
            "old_names": [
                {"name": o.name, "words": o.words, "blind": o.costs, "mend": o.mend}
                for o in conformance.old_names
            ],
        }
    return found
