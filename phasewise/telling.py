"""Who is told of every tick: our own metrics page, and OTLP where the settings name an endpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from phasewise.metering import Metering, Sink
from phasewise.own_metrics import OwnMetrics
from phasewise.settings import OtlpSettings
from serving.errors import Misconfigured
from serving.types import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """The page of all tiers of this process, and everyone who is told."""

    own: OwnMetrics
    sinks: Sequence[Sink]

    def meter(self, slo: Slo) -> Metering:
        """The stopwatch of one tier's loop."""
        return meter_of(self.sinks, slo)


def meter_of(sinks: Sequence[Sink], slo: Slo) -> Metering:
    """A stopwatch by this machine's clocks."""
    return Metering(
        sinks,
        slo=slo,
        unix_s=time.time,  # noqa: TID251 - the edge: spans carry real time
        monotonic_s=time.monotonic,
    )


@asynccontextmanager
async def telling(
    *, otlp: OtlpSettings | None = None, supplies_recorded: bool = False
) -> AsyncIterator[Telling]:
    """Who is told while this lasts; the last of it is sent at the end. Raises Misconfigured."""
    ours = version("phasewise")
    own = OwnMetrics(version=ours, supplies_recorded=supplies_recorded)
    if otlp is None:
        yield Telling(own=own, sinks=(own,))
        return
    headers = {} if otlp.headers_file is None else read_headers(otlp.headers_file)
    try:
        from phasewise.otlp import Otlp
    except ModuleNotFoundError as error:
        raise Misconfigured(
            "OTLP needs one more extra",
            where="otlp.endpoint",
            found=f"no module {error.name}",
            expected="pip install 'phasewise[otlp]'",
        ) from error
    exporter = Otlp(own, endpoint=otlp.endpoint, version=ours, headers=headers)
    try:
        yield Telling(own=own, sinks=(own, exporter))
    finally:
        await asyncio.to_thread(exporter.close)


def read_headers(file: Path) -> dict[str, str]:
    """Headers from lines like `Authorization: Bearer …`; what stands there is shown nowhere."""
    where = str(file)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise Misconfigured(
            "cannot be read", where=where, found=why, expected="a text file with headers"
        ) from error
    headers: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not value.strip():
            raise Misconfigured(
                "not a header",
                where=f"{where}, line {number}",
                found="no name, colon and value",
                expected="Name: value",
            )
        headers[name.strip()] = value.strip()
    return headers
