"""What `phasewise probe` takes, as it was typed, checked and turned into what to run.

Runs nothing; every fault is one sentence (`Misconfigured`) about the first thing that cannot be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from serving.errors import Misconfigured
from serving.local.environment import VARIABLE, EngineEnvironment, default_root
from serving.local.probe_side import ProbeRequest

LEAST_BYTES, MOST_BYTES = 4 << 10, 4 << 30
MOST_HANDLES, MOST_REPETITIONS = 64, 1_000
LEAST_LIMIT_S, MOST_LIMIT_S = 1.0, 3_600.0
_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SIZE = re.compile(r"(\d{1,12})\s*([a-zA-Z]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAsked:
    """The command's options as they were typed."""

    listen: str | None = None
    to: str | None = None
    sizes: str = "64KiB,1MiB,16MiB,64MiB"
    concurrency: str = "1,4"
    operations: str = "read"
    backends: str = "UCX,LIBFABRIC"
    repetitions: int = 7
    ucx_tls: str | None = None
    limit_s: float = 180.0
    json_file: Path | None = None


def _wrong(option: str, found: str, expected: str) -> Misconfigured:
    return Misconfigured(
        "this is no value for it", where=f"--{option}", found=repr(found)[:80], expected=expected
    )


def _listed(option: str, text: str, expected: str) -> list[str]:
    found = [part.strip() for part in text.split(",")]
    if not all(found) or len(found) > 16:
        raise _wrong(option, text, expected)
    return list(dict.fromkeys(found))


def sizes_of(text: str) -> list[int]:
    """Sizes in bytes, smallest first; binary units, `MiB` and so on."""
    expected = "sizes as 64KiB,1MiB: from 4KiB to 4GiB, multiples of 8 bytes"
    sizes = []
    for part in _listed("sizes", text, expected):
        found = _SIZE.fullmatch(part)
        unit = None if found is None else _UNITS.get(found[2].lower())
        if found is None or unit is None:
            raise _wrong("sizes", part, expected)
        size = int(found[1]) * unit
        if size % 8 or not LEAST_BYTES <= size <= MOST_BYTES:
            raise _wrong("sizes", part, expected)
        sizes.append(size)
    return sorted(set(sizes))


def handles_of(text: str) -> list[int]:
    """How many transfers are in flight, fewest first."""
    expected = f"numbers from 1 to {MOST_HANDLES}, as 1,4"
    found = _listed("concurrency", text, expected)
    if not all(part.isascii() and part.isdigit() and len(part) < 4 for part in found):
        raise _wrong("concurrency", text, expected)
    numbers = sorted({int(part) for part in found})
    if not 1 <= numbers[0] <= numbers[-1] <= MOST_HANDLES:
        raise _wrong("concurrency", text, expected)
    return numbers


def operations_of(text: str) -> list[str]:
    """READ, WRITE or both."""
    found = [part.upper() for part in _listed("operations", text, "read, write or read,write")]
    if not set(found) <= {"READ", "WRITE"}:
        raise _wrong("operations", text, "read, write or read,write")
    return found


def backends_of(text: str) -> list[str]:
    """Names of NIXL's backends."""
    found = [part.upper() for part in _listed("backends", text, "names as UCX,LIBFABRIC")]
    if not all(re.fullmatch(r"[A-Z][A-Z_]{0,30}", part) for part in found):
        raise _wrong("backends", text, "names as UCX,LIBFABRIC")
    return found


def endpoint_of(option: str, text: str) -> str:
    """HOST:PORT, as it is."""
    host, _, port = text.rpartition(":")
    good = bool(host) and port.isascii() and port.isdigit() and len(port) < 6
    if not good or not 0 < int(port) < 65536 or any(c.isspace() for c in host):
        raise _wrong(option, text, "HOST:PORT, as 10.0.0.5:5600")
    return text


def engine_python() -> Path:
    """The engine environment's Python, from its setting or the usual place; it must be there."""
    python = EngineEnvironment(default_root()).python
    if not python.is_file():
        raise Misconfigured(
            "the engine environment is not there",
            where=VARIABLE,
            found=f"no {python}",
            expected="an engine environment with NIXL; `phasewise local prepare` makes one",
        )
    return python


def request_of(asked: ProbeAsked) -> ProbeRequest:
    """What to run; Misconfigured about the first thing that cannot be."""
    if asked.listen is not None and asked.to is not None:
        raise Misconfigured(
            "a probe is one side or the other",
            where="--listen and --to",
            found="both",
            expected="one of them, or neither for both sides here",
        )
    if not 1 <= asked.repetitions <= MOST_REPETITIONS:
        raise _wrong("repetitions", str(asked.repetitions), f"1 to {MOST_REPETITIONS}")
    if not LEAST_LIMIT_S <= asked.limit_s <= MOST_LIMIT_S:
        raise _wrong("limit", f"{asked.limit_s:g}", "1 to 3600 seconds")
    tls = asked.ucx_tls
    if tls is not None and not re.fullmatch(r"\^?[a-z0-9_,]{1,100}", tls):
        raise _wrong("ucx-tls", tls, "UCX's names of transports, as tcp,self")
    for option, text in (("listen", asked.listen), ("to", asked.to)):
        if text is not None:
            endpoint_of(option, text)
    return ProbeRequest(
        backends=backends_of(asked.backends),
        operations=operations_of(asked.operations),
        sizes=sizes_of(asked.sizes),
        handles=handles_of(asked.concurrency),
        repetitions=asked.repetitions,
        ucx_tls=tls,
        limit_s=asked.limit_s,
        python=engine_python(),
    )
