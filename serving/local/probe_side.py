"""One side of a probe: what it is asked, as a process of the engine environment, and what it said.

It is heard through a file of events; what NIXL and UCX print is kept. Whether it may run on is
decided by whoever started it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.errors import Misconfigured

SCRIPT = Path(__file__).parent / "inside" / "nixl_probe.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """What to measure; sizes are bytes of one transfer, handles how many are in flight at once."""

    python: Path
    backends: Sequence[str] = ("UCX", "LIBFABRIC")
    operations: Sequence[str] = ("READ",)
    sizes: Sequence[int] = (64 << 10, 1 << 20, 16 << 20, 64 << 20)
    handles: Sequence[int] = (1, 4)
    repetitions: int = 7
    ucx_tls: str | None = None
    limit_s: float = 180.0


def misfit(what: str, *, found: str, expected: str, where: str = "probe") -> Misconfigured:
    """A fault of a probe, for a person."""
    return Misconfigured(what, where=where, found=found, expected=expected)


class Side:
    """One side as a process of its own session, with what it said so far."""

    def __init__(
        self, request: ProbeRequest, folder: Path, name: str, arguments: list[str]
    ) -> None:
        self.name = name
        self._events = folder / f"{name}.events"
        self._words = folder / f"{name}.words"
        self._events.touch()
        self._read = 0
        self.said: list[dict[str, Any]] = []
        environment = {**os.environ, "UCX_PROTO_INFO": "y", "UCX_LOG_LEVEL": "info"}
        environment.pop("PYTHONSAFEPATH", None)  # the script imports what lies beside it
        if request.ucx_tls is not None:
            environment["UCX_TLS"] = request.ucx_tls
        command = [
            *(str(request.python), str(SCRIPT), "--events", str(self._events)),
            *("--limit-s", f"{request.limit_s:g}", *arguments),
        ]
        try:
            with self._words.open("wb") as words:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,  # closes with us, and the side ends
                    stdout=words,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise misfit(
                "the engine environment's Python does not start",
                found=f"{request.python} ({error.strerror})",
                expected="an engine environment; `phasewise local prepare` makes one",
            ) from error

    def hear(self) -> list[dict[str, Any]]:
        """What it said since the last time."""
        with self._events.open("rb") as file:
            file.seek(self._read)
            fresh = file.read()
        whole, _, _ = fresh.rpartition(b"\n")
        self._read += len(whole) + 1 if whole else 0
        news = [json.loads(line) for line in whole.splitlines()]
        self.said += news
        return news

    @property
    def code(self) -> int | None:
        """Its exit code, `None` while it runs."""
        return self._process.poll()

    def first(self, event: str) -> dict[str, Any] | None:
        """The first of its events of that kind."""
        return next((each for each in self.said if each["event"] == event), None)

    def words(self) -> list[str]:
        """What the libraries printed."""
        return self._words.read_text(errors="replace").splitlines()

    def fault(self) -> str:
        """Why it ended, in its own words if it left some."""
        failed = self.first("failed")
        if failed is not None:
            return str(failed["why"])
        if self.code == -signal.SIGALRM:
            return "it took too long"
        last = next((line for line in reversed(self.words()) if line.strip()), "it said nothing")
        return f"exit code {self.code}, {last.strip()[:200]}"

    def end(self) -> None:
        """Kill it with everything that it started, and collect it."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
