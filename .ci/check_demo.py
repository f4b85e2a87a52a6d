"""The demo's figures have the shape that `phasewise demo --json` promises, and could be true."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROWS = "policies"
POLICIES = ("phasewise", "static_peak", "best_static", "pinned_ratio", "last_value")
DEARER_PEERS = ("static_peak", "best_static", "pinned_ratio")
LEAST_ATTAINMENT_RATIO = 0.97
LEAST_PREFILL_SWING = 1.4


def faults_of(document: object) -> list[str]:
    """What is wrong with the figures, in sentences."""
    rows = document.get(ROWS) if isinstance(document, dict) else None
    if not isinstance(rows, dict) or not set(POLICIES) <= rows.keys():
        return [f"expected an object whose `{ROWS}` is an object with {', '.join(POLICIES)}"]
    faults = [f"{ROWS}.{name}: {fault}" for name, row in rows.items() for fault in _row(row)]
    return faults or _claims(rows)


def _claims(rows: dict[str, Any]) -> list[str]:
    """What the README says of the demo, held against its own figures."""
    ours = rows["phasewise"]
    hours = {name: sum(row["accelerator_hours"].values()) for name, row in rows.items()}
    faults = []
    if ours["attainment_ratio"] < LEAST_ATTAINMENT_RATIO:
        faults.append(f"phasewise attains {ours['attainment_ratio']:.4f}")
    faults += [
        f"{peer} takes {hours[peer]:.2f} hours, phasewise {hours['phasewise']:.2f}"
        for peer in DEARER_PEERS
        if hours["phasewise"] >= hours[peer]
    ]
    prefill, decode = ours["replicas"]["prefill"], ours["replicas"]["decode"]
    if prefill["p90"] < LEAST_PREFILL_SWING * prefill["p10"]:
        faults.append(f"prefill p90/p10 is {prefill['p90'] / prefill['p10']:.2f}")
    if max(decode["max"] / decode["mean"], 2.0 - decode["min"] / decode["mean"]) > 1.25:
        faults.append(f"decode leaves ±25 % of its mean: {decode}")
    return faults


def _row(row: object) -> list[str]:
    if not isinstance(row, dict):
        return ["not an object"]
    checks = {
        "requests": _number(row.get("requests")) and row["requests"] > 0,
        "goodput_requests": _number(row.get("goodput_requests"))
        and 0 < row["goodput_requests"] <= row.get("requests", 0),
        "attainment_ratio": _number(row.get("attainment_ratio"))
        and 0 < row["attainment_ratio"] <= 1,
        "accelerator_hours": _hours(row.get("accelerator_hours")),
        "ttft_s": _quantiles(row.get("ttft_s")),
        "itl_s": _quantiles(row.get("itl_s")),
        "scaling_actions": _number(row.get("scaling_actions")) and row["scaling_actions"] >= 0,
        "reversals": _number(row.get("reversals")) and row["reversals"] >= 0,
        "replicas": _spreads(row.get("replicas")),
    }
    return [f"{key} is {row.get(key)!r}" for key, holds in checks.items() if not holds]


def _quantiles(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and all(_number(found.get(key)) for key in ("p50", "p99"))
        and 0 < found["p50"] <= found["p99"]
    )


def _spreads(found: Any) -> bool:
    keys = ("min", "p10", "mean", "p90", "max")
    return (
        isinstance(found, dict)
        and {"prefill", "decode"} <= found.keys()
        and all(all(_number(spread.get(key)) for key in keys) for spread in found.values())
    )


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
