"""A recorded run of one prefill and one decode replica: what was asked, and the pages meanwhile.

A folder of three files: `about.json`, `requests.csv` and `pages.jsonl.xz` (one page a line; xz sees
that pages repeat one another, so that a minute of them is small). Times are seconds since the
recording began. Reads and writes files; what it returns is plain data.
"""

from __future__ import annotations

import csv
import json
import lzma
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from serving.errors import Misconfigured
from serving.simulation.traffic import Request
from serving.types import Phase

ABOUT, REQUESTS, PAGES = "about.json", "requests.csv", "pages.jsonl.xz"
TARGETS = (*(phase.value for phase in (Phase.PREFILL, Phase.DECODE)), "router")
"""Whose pages are kept: those of the two replicas and of vllm-router."""

MOST_PAGES_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What ran, in words and in the engine's own arguments.

    `urls` is where the router found each replica, by target: its page names workers so.
    `start_s` is how long the engines took to answer, `None` where nobody measured it. `load` says
    in words what was played.
    """

    machine: str
    engine: str
    router: str
    model: str
    load: str
    urls: dict[str, str]
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    start_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedRequest:
    """One request as its sender saw it; `ttft_s` and `e2e_s` are `None` where no token came."""

    t_s: float
    input_tokens: int
    output_tokens: int
    ttft_s: float | None
    e2e_s: float | None
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPage:
    """One page of one target, and when it was asked for."""

    at_s: float
    target: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A whole run. Requests are in the order in which they were sent, pages in that of time."""

    about: About
    requests: tuple[PlayedRequest, ...]
    pages: tuple[RecordedPage, ...]

    def of(self, target: str) -> tuple[RecordedPage, ...]:
        """The pages of one target."""
        return tuple(page for page in self.pages if page.target == target)

    @property
    def trace(self) -> tuple[Request, ...]:
        """The requests as the simulator takes them."""
        return tuple(Request(r.t_s, r.input_tokens, r.output_tokens) for r in self.requests)

    @property
    def failed(self) -> int:
        """How many requests got no whole answer."""
        return sum(r.status != 200 or r.e2e_s is None for r in self.requests)


def write_recording(folder: Path, recording: Recording) -> None:
    """Write the three files; the folder is made where it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ABOUT).write_text(json.dumps(asdict(recording.about), indent=2) + "\n")
    with (folder / REQUESTS).open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(_columns())
        rows.writerows(_cells(request) for request in recording.requests)
    with lzma.open(folder / PAGES, "wt", preset=9, encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(page)) + "\n" for page in recording.pages)


def read_recording(folder: Path) -> Recording:
    """Read what `write_recording` wrote; raises Misconfigured with the file that is wrong."""
    try:
        about = About(**json.loads((folder / ABOUT).read_text()))
        with (folder / REQUESTS).open(newline="") as file:
            requests = tuple(_request(row) for row in csv.DictReader(file))
        with lzma.open(folder / PAGES, "rt", encoding="utf-8") as file:
            pages = tuple(RecordedPage(**json.loads(line)) for line in _bounded(file))
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        raise _bad(
            "the recording cannot be read", folder, repr(error), f"{ABOUT}, {REQUESTS}, {PAGES}"
        ) from error
    missing = [target for target in TARGETS if sum(p.target == target for p in pages) < 2]
    if missing or not requests:
        found = f"fewer than two pages of {', '.join(missing)}" if missing else "no requests"
        raise _bad("the recording is too short", folder, found, "requests, two pages of each")
    return Recording(about=about, requests=requests, pages=pages)


def _bounded(lines: Iterable[str]) -> Iterable[str]:
    left = MOST_PAGES_BYTES
    for line in lines:
        left -= len(line)
        if left < 0:
            raise ValueError(f"pages of more than {MOST_PAGES_BYTES} bytes")
        yield line


def _columns() -> Sequence[str]:
    return [field.name for field in fields(PlayedRequest)]


def _cells(request: PlayedRequest) -> list[str]:
    values = [getattr(request, name) for name in _columns()]
    return [
        "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)
        for value in values
    ]


def _request(row: dict[str, Any]) -> PlayedRequest:
    return PlayedRequest(
        t_s=float(row["t_s"]),
        input_tokens=int(row["input_tokens"]),
        output_tokens=int(row["output_tokens"]),
        ttft_s=float(row["ttft_s"]) if row["ttft_s"] else None,
        e2e_s=float(row["e2e_s"]) if row["e2e_s"] else None,
        status=int(row["status"]),
    )


def _bad(what: str, folder: Path, found: str, expected: str) -> Misconfigured:
    return Misconfigured(what, where=str(folder), found=found, expected=expected)
