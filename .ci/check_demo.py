"""The demo's figures have the shape that `phasewise demo --json` promises, and could be true."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROWS = "policies"  # the list that holds one object for each way to size the tier
FEWEST_ROWS = 2  # a comparison of one is none


def faults_of(document: object) -> list[str]:
    """What is wrong with the figures, in sentences."""
    rows = document.get(ROWS) if isinstance(document, dict) else None
    if not isinstance(rows, list) or len(rows) < FEWEST_ROWS:
        return [f"expected an object whose `{ROWS}` is a list of at least {FEWEST_ROWS}"]
    return [f"{ROWS}[{index}]: {fault}" for index, row in enumerate(rows) for fault in _row(row)]


def _row(row: object) -> list[str]:
    if not isinstance(row, dict):
        return ["not an object"]
    checks = {
        "policy": isinstance(row.get("policy"), str) and row["policy"] != "",
        "requests": _number(row.get("requests")) and row["requests"] > 0,
        "attainment_ratio": _number(row.get("attainment_ratio"))
        and 0 < row["attainment_ratio"] <= 1,
        "accelerator_hours": _hours(row.get("accelerator_hours")),
        "scaling_actions": _number(row.get("scaling_actions")) and row["scaling_actions"] >= 0,
    }
    return [f"{key} is {row.get(key)!r}" for key, holds in checks.items() if not holds]


def _hours(hours: Any) -> bool:
    return (
        isinstance(hours, dict)
        and {"prefill", "decode"} <= hours.keys()
        and all(_number(value) and value > 0 for value in hours.values())
    )


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a figure")


def main(path: Path) -> int:
    """Print every fault; the exit code says whether there is one."""
    try:
        document = json.loads(path.read_text(), parse_constant=_refuse_constant)
        faults = faults_of(document)
    except (OSError, ValueError) as error:
        faults = [str(error)]
    for fault in faults:
        print(f"{path}: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
