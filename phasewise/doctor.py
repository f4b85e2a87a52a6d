"""`phasewise doctor`: looks at pages, a settings file or a Prometheus, and says what is wrong.

Exit code 0: the loop can run on it, 1: it cannot. Bad input is `Misconfigured`, as everywhere.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from phasewise.doctor_pages import targets_in
from phasewise.doctor_prometheus import diagnose_prometheus
from phasewise.doctor_report import as_json, print_diagnosis
from phasewise.doctor_settings import diagnose_settings
from phasewise.doctor_targets import Diagnosis, diagnose, examine
from phasewise.settings import load_settings
from serving.errors import Misconfigured
from serving.schema.tier import Tier, load_tier

CAN_RUN = 0
CANNOT_RUN = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRequest:
    """What to look at: exactly one of the first three. `tier` gives an SLO to the other two."""

    config: Path | None = None
    pages: Path | None = None
    prometheus: str | None = None
    tier: Path | None = None
    json_file: Path | None = None


def run_doctor(request: DoctorRequest, console: Console) -> int:
    """Look, report, and give the exit code."""
    found = diagnoses(request)
    for diagnosis in found:
        print_diagnosis(diagnosis, console)
    if request.json_file is not None:
        document = {"can_run": all(d.can_run for d in found), "tiers": [as_json(d) for d in found]}
        try:
            request.json_file.parent.mkdir(parents=True, exist_ok=True)
            request.json_file.write_text(json.dumps(document, indent=2) + "\n")
        except OSError as error:
            raise Misconfigured(
                "cannot be written",
                where=str(request.json_file),
                found=error.strerror or type(error).__name__,
                expected="a file in a folder that can be written",
            ) from error
    return CAN_RUN if all(diagnosis.can_run for diagnosis in found) else CANNOT_RUN


def diagnoses(request: DoctorRequest) -> tuple[Diagnosis, ...]:
    """The diagnosis of each tier that was asked for."""
    given = [
        option
        for option, value in (
            ("-c", request.config),
            ("--pages", request.pages),
            ("--prometheus", request.prometheus),
        )
        if value is not None
    ]
    if len(given) != 1 or (request.config is not None and request.tier is not None):
        raise Misconfigured(
            "one thing at a time",
            where="phasewise doctor",
            found=" and ".join([*given, *(["--tier"] if request.tier else [])]) or "nothing",
            expected="one of -c FILE, --pages DIR, --prometheus URL (the last two with --tier)",
        )
    tier = None if request.tier is None else load_tier(request.tier)
    if request.config is not None:
        settings = load_settings(request.config)
        return asyncio.run(diagnose_settings(settings, where=str(request.config)))
    if request.pages is not None:
        return (_diagnose_pages(request.pages, tier),)
    assert request.prometheus is not None
    return (asyncio.run(diagnose_prometheus(request.prometheus, tier=tier)),)


def _diagnose_pages(folder: Path, tier: Tier | None) -> Diagnosis:
    slo = None if tier is None else tier.slo
    model = None if tier is None else tier.spec.model
    examined = [examine(target, slo=slo, model=model) for target in targets_in(folder)]
    return diagnose(str(folder), examined, ())
