"""A limit on the CPU of a replica, by a control group of version 2 or 1, where one can be made.

Where none can be made it says why, and the replica runs on without: whoever needs a slower replica
then states a delay for its steps. A group holds whole processes; their later children are in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from serving.errors import Unavailable

PERIOD_MICROSECONDS = 100_000
_LEAVE_S = 2.0


@dataclass(frozen=True, slots=True)
class CpuGroup:
    """A control group that exists, with its folder."""

    folder: Path

    def hold(self, pids: Iterable[int]) -> None:
        """Put processes into the group; those that have just ended are left out."""
        for pid in pids:
            with suppress(ProcessLookupError):
                (self.folder / "cgroup.procs").write_text(f"{pid}\n")

    def remove(self) -> bool:
        """Take the group away; its processes must have ended. False if it is still there."""
        end_s = time.monotonic() + _LEAVE_S
        while self.folder.exists():
            try:
                self.folder.rmdir()
            except OSError:
                if time.monotonic() > end_s:
                    return False
                time.sleep(0.02)
        return True


def make_group(name: str, cores: float, *, mounts: str | None = None) -> CpuGroup:
    """A group in which all processes together get `cores` CPUs. Raises `Unavailable` with why."""
    text = Path("/proc/self/mounts").read_text() if mounts is None else mounts
    quota = max(1000, round(cores * PERIOD_MICROSECONDS))
    whys: list[str] = []
    for parent, version in _parents(text):
        folder = parent / name
        try:
            folder.mkdir()
        except OSError as error:
            whys.append(f"{parent}: {error.strerror}")
            continue
        try:
            if version == 2:
                (folder / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")
            else:
                (folder / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
                (folder / "cpu.cfs_quota_us").write_text(str(quota))
        except OSError as error:
            whys.append(f"{folder}: {error.strerror}")
            with suppress(OSError):
                folder.rmdir()
            continue
        return CpuGroup(folder)
    raise Unavailable("; ".join(whys) or "no control group with a cpu controller is mounted")


def _parents(mounts: str) -> list[tuple[Path, int]]:
    """Where a group could be made: version 1's cpu hierarchy first, for it wins where both are."""
    first, second = [], []
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 4:
            continue
        if fields[2] == "cgroup" and "cpu" in fields[3].split(","):
            first.append((Path(fields[1]), 1))
        elif fields[2] == "cgroup2":
            second.append((Path(fields[1]), 2))
    return [(parent, version) for parent, version in first + second if os.access(parent, os.W_OK)]
