"""The wheel holds the six rooms and their data files, all that the checkout has, and no more."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOMS = {"serving", "collector", "autoscaler", "dashboards", "alerts", "phasewise"}
NOT_SHIPPED = {"__pycache__"}


def wanted_files(root: Path) -> set[str]:
    """Every file of the six rooms in the checkout, by its name in the wheel."""
    return {
        str(path.relative_to(root))
        for room in ROOMS
        for path in (root / room).rglob("*")
        if path.is_file() and not NOT_SHIPPED & set(path.parts)
    }


def faults_of(names: set[str], wanted: set[str]) -> list[str]:
    """What is wrong with the names in a wheel, in sentences."""
    packaged = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    data = ("profiles/llama-3.1-8b-l40s.yaml", "traces/azure2023_conv_req.csv.gz", "demo-tier.yaml")
    faults = [f"missing: {name}" for name in sorted(wanted - packaged)]
    faults += [f"not of the six rooms: {name}" for name in sorted(packaged - wanted)]
    faults += [
        f"no file ends with {end}" for end in data if not any(n.endswith(end) for n in packaged)
    ]
    return faults


def main(wheel: Path) -> int:
    """Print every fault; the exit code says whether there is one."""
    with zipfile.ZipFile(wheel) as archive:
        faults = faults_of(set(archive.namelist()), wanted_files(Path(__file__).parents[1]))
    for fault in faults:
        print(f"{wheel.name}: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
