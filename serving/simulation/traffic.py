"""Request traces: read, multiplied. Reads files; what it returns is plain data."""

from __future__ import annotations

import csv
import gzip
import random
import re
import zlib
from collections.abc import Iterator, Sequence
from math import floor, isfinite
from pathlib import Path
from typing import NamedTuple, TextIO

from serving.errors import Misconfigured

COLUMNS = ("t_s", "input_tokens", "output_tokens")
LONGEST_S = 31 * 86_400.0  # what is later was written in other units, or as Unix times
_NUMBER = re.compile(r"[-+.0-9a-zA-Z]+")  # Python alone would take 1_000 and other scripts' digits


class Request(NamedTuple):
    """One request of a trace: when it arrives (s since the trace began) and how long it is."""

    arrival_s: float
    input_tokens: int
    output_tokens: int


def load_trace(path: Path | str) -> list[Request]:
    """Read a trace from `.csv` or `.csv.gz` with the columns t_s, input_tokens, output_tokens.

    Further columns are ignored, and so is a byte order mark. Whatever is wrong is named with its
    line (header = line 1).
    """
    path = Path(path)
    if path.is_dir():
        raise _bad("the trace cannot be read", str(path), "a folder", "a .csv or .csv.gz")
    try:
        with _open_text(path) as file:
            requests = list(_rows(csv.reader(file), where=str(path)))
    except FileNotFoundError as error:
        raise _bad("there is no such trace", str(path), "no file", "a .csv or .csv.gz") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise _bad("the trace cannot be read", str(path), str(error), "CSV in UTF-8") from error
    if not requests:
        raise _bad("the trace is empty", str(path), "no requests", "at least one")
    return requests


def multiply(
    requests: Sequence[Request], *, copies: float, spread_s: float, seed: int
) -> list[Request]:
    """Repeat each request `copies` times, each copy moved uniformly by up to ±`spread_s`.

    The copies stay inside the trace's own span and come back sorted. A fractional part keeps that
    share of the requests for one copy more. One copy is the trace unchanged. Moving copies smooths
    whatever is faster than the spread.
    """
    if not (isfinite(copies) and copies > 0.0):
        raise _bad("volume", "copies", repr(copies), "a number above 0")
    if not (isfinite(spread_s) and spread_s >= 0.0):
        raise _bad("spread", "spread_s", repr(spread_s), "0 or more seconds")
    if copies == 1:
        return list(requests)
    rng = random.Random(seed)
    first_s, last_s = requests[0].arrival_s, requests[-1].arrival_s
    whole, part = floor(copies), copies - floor(copies)
    moved = [
        Request(
            min(max(request.arrival_s + rng.uniform(-spread_s, spread_s), first_s), last_s),
            request.input_tokens,
            request.output_tokens,
        )
        for request in requests
        for _ in range(whole + (rng.random() < part))
    ]
    moved.sort()
    return moved


def _open_text(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _rows(rows: Iterator[list[str]], *, where: str) -> Iterator[Request]:
    header = next(rows, [])
    for name in COLUMNS:
        if name not in header:
            raise _bad(f"no column {name}", f"{where}, line 1", repr(header), ", ".join(COLUMNS))
    columns = [header.index(name) for name in COLUMNS]
    first_s: float | None = None
    previous_s: float | None = None
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        here = f"{where}, line {line}"
        if len(row) <= max(columns):
            raise _bad("the row is too short", here, repr(row), f"{len(header)} fields")
        time, prompt, answer = (row[column] for column in columns)
        arrival_s = _seconds(time, here)
        if arrival_s > LONGEST_S:
            raise _bad(
                f"the trace starts at {arrival_s:g} s"
                if first_s is None
                else "the trace spans more than 31 days",
                here,
                repr(time),
                "times in seconds from the trace's start, within 31 days",
            )
        if previous_s is not None and arrival_s < previous_s:
            raise _bad("times are not sorted", here, time, f"at least {previous_s}")
        first_s = arrival_s if first_s is None else first_s
        previous_s = arrival_s
        yield Request(
            arrival_s, _tokens(prompt, COLUMNS[1], here), _tokens(answer, COLUMNS[2], here)
        )


def _seconds(text: str, here: str) -> float:
    try:
        value = float(_plain(text))
    except ValueError as error:
        raise _bad("t_s is not a number", here, repr(text), "seconds") from error
    if not isfinite(value) or value < 0.0:
        raise _bad("t_s is out of range", here, repr(text), "finite seconds, 0 or more")
    return value


def _tokens(text: str, column: str, here: str) -> int:
    try:
        value = int(_plain(text))
    except ValueError as error:
        raise _bad(f"{column} is not a whole number", here, repr(text), "1 or more") from error
    if value < 1:
        raise _bad(f"{column} is out of range", here, repr(text), "1 or more")
    return value


def _plain(text: str) -> str:
    if not _NUMBER.fullmatch(text.strip()):
        raise ValueError(text)
    return text


def _bad(what: str, where: str, found: str, expected: str) -> Misconfigured:
    return Misconfigured(what, where=where, found=found, expected=expected)
