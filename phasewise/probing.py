"""`phasewise probe`: measures and tells, or is the other side of another machine's probe.

Measuring is in `serving.local.probe`; options in `probe_options`, what is told in `probe_report`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from phasewise.probe_options import ProbeAsked, request_of
from phasewise.probe_report import show, size_words, told
from serving.errors import Misconfigured
from serving.local.probe import run_probe, serve_probe


def probe(asked: ProbeAsked, console: Console) -> None:
    """Measure and tell, or be the other side."""
    request = request_of(asked)
    if asked.listen is not None:
        where = asked.listen
        console.print(
            f"Listening at {where} for one probe, for at most {request.limit_s:g} s. "
            f"On the other machine: phasewise probe --to {where}",
            highlight=False,
        )
        serve_probe(request, listen=where, report=lambda _: None)
        console.print("The probe is over; its figures are on the other machine.")
        return
    if asked.json_file is not None:
        _check_writable(asked.json_file)
    with console.status("starting both sides") as status:
        found = run_probe(request, to=asked.to, report=lambda event: status.update(progress(event)))
    asked_tls = asked.ucx_tls or os.environ.get("UCX_TLS")
    show(found, console, ucx_tls=asked_tls)
    if asked.json_file is not None:
        text = json.dumps(told(found, ucx_tls=asked_tls), indent=2) + "\n"
        asked.json_file.write_text(text, encoding="utf-8")


def _check_writable(file: Path) -> None:
    """Before anything is measured, as the figures would be lost."""
    try:
        with file.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise Misconfigured(
            "the figures cannot be kept there",
            where="--json",
            found=f"{file} ({error.strerror})",
            expected="a file that can be written",
        ) from error


def progress(event: Mapping[str, Any]) -> str:
    """What goes on, in a few words."""
    if event["event"] == "case":
        return f"measured {event['handles']} x {size_words(event['bytes'])} over {event['backend']}"
    if event["event"] == "backend":
        return f"moving bytes over {event['backend']}"
    return "both sides meet"
