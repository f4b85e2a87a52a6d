"""The packaged traces are there, readable, and named in the licence notices."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from serving.errors import Misconfigured
from serving.simulation.trace_files import TRACES, packaged_trace

ROOT = Path(__file__).parents[2]
MOST_BYTES = 1_000_000  # the wheel carries them


@pytest.mark.parametrize(
    ("name", "requests"),
    [("azure2023_conv", 19_366), ("azure2023_code", 8_819), ("mixshift4h", 80_829)],
)
def test_a_packaged_trace_is_whole_and_sorted(name: str, requests: int) -> None:
    with gzip.open(packaged_trace(name), "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    times_s = [float(row["t_s"]) for row in rows]

    assert len(rows) == requests
    assert times_s == sorted(times_s)
    assert min(int(row["input_tokens"]) for row in rows) >= 1
    assert min(int(row["output_tokens"]) for row in rows) >= 1


@pytest.mark.parametrize("name", TRACES)
def test_a_packaged_trace_is_small_and_its_source_is_named(name: str) -> None:
    path = packaged_trace(name)
    sources = (path.parent / "SOURCES.md").read_text()
    notices = (ROOT / "THIRD_PARTY_NOTICES.md").read_text()

    assert path.stat().st_size < MOST_BYTES
    assert path.name in sources
    assert path.name in notices


def test_an_unknown_trace_is_refused_with_the_known_names() -> None:
    with pytest.raises(Misconfigured, match="found 'azure', expected one of azure2023_conv"):
        packaged_trace("azure")
