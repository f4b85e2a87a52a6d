"""Where a run keeps its files, for those that write them and those that only read them.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from pathlib import Path

from phasewise.settings import Settings


def ledger_path(settings: Settings, tier_name: str) -> Path:
    """One ledger for each tier: the file itself for a single tier, else with the tier's name."""
    file = settings.ledger.file
    return (
        file
        if len(settings.tiers) == 1
        else file.with_name(f"{file.stem}-{tier_name}{file.suffix}")
    )


def plan_file(ledger: Path) -> Path:
    """The published plan of a tier, beside its ledger."""
    return ledger.with_name(ledger.name + ".plan.json")
