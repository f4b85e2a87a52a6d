"""The doctor's judgement: each target examined, pools held against their labels, and one verdict.

Pure: no clock, no network, no log. Whoever fetches pages gives them here as `Target`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from collector.conformance import Conformance, Fault, conformance_of
from collector.costs import Weight
from collector.evidence import Evidence, Part, contradiction, evidence_of
from collector.roles import Role, role_of
from collector.slo_bounds import slo_off_bounds
from serving.dialects.page import Page
from serving.types import Phase, Slo

COVERAGE_FLOOR_RATIO = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One page, or why there is none (`problem`); `declared` and `pool` as somebody labelled it.

    `still` says why the page is a copy of an earlier one. A starting replica has no page yet, and
    that is no problem.
    """

    name: str
    where: str
    pool: str | None = None
    declared: Phase | None = None
    page: Page | None = None
    problem: str | None = None
    still: str | None = None
    starting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What was found out about a target. `wrong` keeps it from being used, `advice` does not."""

    target: Target
    evidence: Evidence | None
    conformance: Conformance | None
    wrong: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    @property
    def is_replica(self) -> bool:
        """Whether it is (or was said to be) a replica."""
        if self.evidence is None:
            return self.target.pool is not None and not self.target.starting
        return self.evidence.part is Part.REPLICA

    @property
    def phase(self) -> Phase | None:
        """What it does: as labelled, else as the evidence tells."""
        if self.target.declared is not None:
            return self.target.declared
        return self.evidence.role.phase if self.evidence is not None else None

    @property
    def usable(self) -> bool:
        """Whether it can be used for sizing."""
        return not self.wrong and self.conformance is not None and self.conformance.usable


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Something beside the pages: `ok` is `None` where it could not be told; `stops` the loop."""

    what: str
    ok: bool | None
    words: str
    stops: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything that the doctor says. `why` is one line, whether the loop can run or not."""

    source: str
    targets: tuple[Examined, ...]
    checks: tuple[Check, ...]
    can_run: bool
    why: str


def examine(target: Target, *, slo: Slo | None, model: str | None = None) -> Examined:
    """One target. An `slo` is held against its buckets, a `model` against the names it serves."""
    page = target.page
    if page is None:
        why = () if target.starting else (target.problem or "there is no page",)
        return Examined(target=target, evidence=None, conformance=None, wrong=why)
    evidence = evidence_of(page)
    phase = target.declared or evidence.role.phase
    wrong: list[str] = []
    advice: list[str] = []
    conformance = None
    if evidence.readable:
        conformance = conformance_of(page, evidence.dialect, phase)
        wrong += _missing(conformance)
    elif evidence.part is Part.REPLICA:
        wrong.append(f"{evidence.engine}: phasewise does not read this dialect")
    if target.problem is not None:
        wrong.append(target.problem)
    if target.still is not None:
        wrong.append(target.still)
    contradicts = contradiction(target.declared, evidence.role)
    if contradicts is not None:
        wrong.append(contradicts)
    if evidence.part is Part.AUTOSCALER:
        advice.append("another autoscaler: it sizes these pools too, so let only one of both act")
    if model is not None and evidence.models and model not in evidence.models:
        advice.append(f"it serves {', '.join(evidence.models)}; the tier says {model}")
    if slo is not None:
        advice += [off.words for off in slo_off_bounds(page, evidence.dialect, phase, slo)]
    return Examined(
        target=target,
        evidence=evidence,
        conformance=conformance,
        wrong=tuple(wrong),
        advice=tuple(advice),
    )


def _missing(conformance: Conformance) -> Iterable[str]:
    for finding in conformance.findings:
        if finding.weight is Weight.NEEDED:
            fault = "is missing" if finding.fault is Fault.MISSING else f"is {finding.fault}"
            yield f"{finding.name} {fault}"


def pool_roles(examined: Sequence[Examined]) -> Mapping[str, Role]:
    """What each pool does, from all its replicas together."""
    pools: dict[str, list[Evidence]] = {}
    for each in examined:
        if each.target.pool is not None and each.evidence is not None and each.is_replica:
            pools.setdefault(each.target.pool, []).append(each.evidence)
    return {pool: role_of([e.signals for e in found]) for pool, found in pools.items()}


def role_checks(examined: Sequence[Examined]) -> tuple[Check, ...]:
    """Labels against evidence, pool by pool; two pools with each other's role: swapped labels."""
    declared = {
        each.target.pool: each.target.declared
        for each in examined
        if each.target.pool is not None and each.target.declared is not None and each.is_replica
    }
    roles = pool_roles(examined)
    checks: list[Check] = []
    turned: dict[Phase, str] = {}
    for pool, phase in declared.items():
        role = roles.get(pool)
        what = f"role of pool {pool}"
        if role is None:
            continue
        against = contradiction(phase, role)
        if against is not None:
            turned[phase] = pool
            checks.append(Check(what=what, ok=False, words=against, stops=True))
        elif role.phase is None:
            checks.append(Check(what=what, ok=None, words=f"labelled {phase}; {role.words[0]}"))
        elif role.phase is not phase:
            words = f"labelled {phase}, and works as {role.phase}: {role.words[0]}"
            checks.append(Check(what=what, ok=None, words=words))
        else:
            words = f"labelled {phase}, and the evidence agrees: {role.words[0]}"
            checks.append(Check(what=what, ok=True, words=words))
    if {Phase.PREFILL, Phase.DECODE} <= turned.keys():
        pools = f"{turned[Phase.PREFILL]} and {turned[Phase.DECODE]}"
        words = f"the labels of prefill and decode are swapped: pools {pools} do each other's work"
        checks.insert(0, Check(what="labels", ok=False, words=words, stops=True))
    return tuple(checks)


def diagnose(
    source: str,
    examined: Sequence[Examined],
    checks: Sequence[Check],
    *,
    floor_ratio: float = COVERAGE_FLOOR_RATIO,
) -> Diagnosis:
    """All of it with its verdict: can the loop run on this?"""
    every = (*checks, *role_checks(examined))
    can_run, why = _verdict(examined, every, floor_ratio)
    return Diagnosis(source=source, targets=tuple(examined), checks=every, can_run=can_run, why=why)


def _verdict(
    examined: Sequence[Examined], checks: Sequence[Check], floor_ratio: float
) -> tuple[bool, str]:
    stopping = next((check for check in checks if check.stops and check.ok is False), None)
    if stopping is not None:
        return False, f"{stopping.what}: {stopping.words}"
    replicas = [each for each in examined if each.is_replica]
    if not replicas:
        return False, "no page of an engine was found"
    usable = [each for each in replicas if each.usable]
    if not usable:
        one = replicas[0]
        why = one.wrong[0] if one.wrong else "nothing on it can be used"
        return False, f"no replica's page can be used; {one.target.name}: {why}"
    shares = []
    for phase in Phase:
        of_phase = [each for each in replicas if each.phase is phase]
        good = sum(1 for each in of_phase if each.usable)
        if of_phase and good < floor_ratio * len(of_phase):
            bad = next(each for each in of_phase if not each.usable)
            return False, (
                f"{phase}: {good} of {len(of_phase)} pages can be used, "
                f"under the floor of {floor_ratio:.0%}; {bad.target.name}: {bad.wrong[0]}"
            )
        if of_phase:
            shares.append(f"{phase} {good} of {len(of_phase)}")
    known = {each.phase for each in usable}
    for phase, other in ((Phase.PREFILL, Phase.DECODE), (Phase.DECODE, Phase.PREFILL)):
        if phase in known and other not in known and None not in known:
            return False, f"there is a page of {phase} and none of {other}"
    if not shares:
        shares.append(f"{len(usable)} of {len(replicas)}, no phase told: their labels must say it")
    left_out = [each.target.name for each in replicas if not each.usable]
    tail = f"; without {_some(left_out)}" if left_out else ""
    return True, f"usable pages: {', '.join(shares)}{tail}"


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
