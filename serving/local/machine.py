"""Whether the engines can run on this machine at all, found out before anything is downloaded.

`Machine.here` looks; `refuse` decides and is pure: one `Misconfigured` sentence for each lack.
"""

from __future__ import annotations

import ctypes
import platform
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from serving.errors import Misconfigured

NEEDED_BYTES: Final = 6_000_000_000
"""Room for the environment on disk: 5.5 GB unpacked, and a rest (measured)."""
OLDEST_PYTHON: Final = (3, 11)
NEWEST_PYTHON: Final = (3, 14)
CPU_FLAGS: Final = ("avx2", "fma", "f16c")
"""What the slower of vLLM's two x86 builds is compiled for; it takes AVX-512 by itself."""
OLDEST_GLIBC: Final = (2, 34)
LIBRARIES: Final = {"libnuma.so.1": "libnuma1", "libstdc++.so.6": "libstdc++6"}
"""Shared libraries that vLLM takes from the system, with the Debian packages that hold them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What matters of a machine. `glibc` is `None` where the C library is another one."""

    system: str
    architecture: str
    implementation: str
    python: tuple[int, int]
    glibc: tuple[int, int] | None
    cpu_flags: frozenset[str]
    missing_libraries: tuple[str, ...]
    free_bytes: int

    @classmethod
    def here(cls, folder: Path) -> Machine:
        """This machine, its disk as seen from the folder, which need not be there yet."""
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        return cls(
            system=platform.system(),
            architecture=platform.machine(),
            implementation=platform.python_implementation(),
            python=sys.version_info[:2],
            glibc=_glibc(),
            cpu_flags=_cpu_flags(),
            missing_libraries=tuple(name for name in LIBRARIES if not _loads(name)),
            free_bytes=shutil.disk_usage(there).free,
        )


def refuse(machine: Machine, *, where: str, needed_bytes: int = NEEDED_BYTES) -> None:
    """Raise `Misconfigured` for the first thing that keeps the engines from running here."""
    if (machine.system, machine.architecture) != ("Linux", "x86_64"):
        raise Misconfigured(
            "vLLM for CPUs is not made for this machine",
            where=where,
            found=f"{machine.system} on {machine.architecture}",
            expected="Linux on x86_64 (the simulated engine runs everywhere)",
        )
    if machine.implementation != "CPython" or not (
        OLDEST_PYTHON <= machine.python <= NEWEST_PYTHON
    ):
        raise Misconfigured(
            "vLLM for CPUs does not run on this Python",
            where=where,
            found=f"{machine.implementation} {_dotted(machine.python)}",
            expected=f"CPython {_dotted(OLDEST_PYTHON)} to {_dotted(NEWEST_PYTHON)}",
        )
    if machine.glibc is None or machine.glibc < OLDEST_GLIBC:
        raise Misconfigured(
            "the C library is not one that the packages are built for",
            where=where,
            found="another than glibc" if machine.glibc is None else _dotted(machine.glibc),
            expected=f"glibc {_dotted(OLDEST_GLIBC)} or newer",
        )
    lacking = [flag for flag in CPU_FLAGS if flag not in machine.cpu_flags]
    if lacking:
        raise Misconfigured(
            "the CPU lacks instructions that vLLM is compiled for",
            where=where,
            found=f"no {', '.join(lacking)} in /proc/cpuinfo",
            expected=", ".join(CPU_FLAGS),
        )
    if machine.missing_libraries:
        packages = " ".join(LIBRARIES[name] for name in machine.missing_libraries)
        raise Misconfigured(
            "a shared library that vLLM needs is missing",
            where=where,
            found=f"no {', '.join(machine.missing_libraries)}",
            expected=f"it from the system: on Debian, apt-get install {packages}",
        )
    if machine.free_bytes < needed_bytes:
        raise Misconfigured(
            "not enough room on the disk",
            where=where,
            found=f"{machine.free_bytes / 1e9:.1f} GB free",
            expected=f"at least {needed_bytes / 1e9:.1f} GB",
        )


def _glibc() -> tuple[int, int] | None:
    name, version = platform.libc_ver()
    parts = version.split(".")
    if name != "glibc" or len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])


def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(flags.partition(":")[2].split())


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def process_using(folder: Path) -> int | None:
    """A living process that has mapped a file under a folder; `None` if none was seen."""
    inside = f"{folder.absolute()}/".encode()
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                if inside in (process / "maps").read_bytes():
                    return int(process.name)
    return None
