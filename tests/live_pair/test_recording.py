"""A recording is a folder that reads back as it was, or is refused in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from phasewise.reality.recording import (
    ABOUT,
    PAGES,
    REQUESTS,
    Recording,
    read_recording,
    write_recording,
)
from serving.errors import Misconfigured
from tests.live_pair import made


@pytest.fixture(scope="module")
def short() -> Recording:
    return made.recording(seconds=4.0)


def rounded(recording: Recording) -> Recording:
    """Times of requests are kept to the microsecond."""
    requests = tuple(replace(r, t_s=round(r.t_s, 6)) for r in recording.requests)
    return replace(recording, requests=requests)


def test_what_was_written_reads_back(short: Recording, tmp_path: Path) -> None:
    write_recording(tmp_path / "new" / "folder", short)

    assert read_recording(tmp_path / "new" / "folder") == rounded(short)


def test_a_request_without_an_answer_has_no_times(short: Recording, tmp_path: Path) -> None:
    lost = replace(short.requests[0], ttft_s=None, e2e_s=None, status=500)
    write_recording(tmp_path, replace(short, requests=(lost, *short.requests[1:])))

    read = read_recording(tmp_path)

    assert (read.requests[0].ttft_s, read.requests[0].e2e_s) == (None, None)
    assert read.failed == 1


@pytest.mark.parametrize("name", [ABOUT, REQUESTS, PAGES])
@pytest.mark.parametrize("content", [None, b"", b"neither"])
def test_a_file_that_is_missing_or_broken_is_refused_in_words(
    short: Recording, tmp_path: Path, name: str, content: bytes | None
) -> None:
    write_recording(tmp_path, short)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(Misconfigured, match="recording"):
        read_recording(tmp_path)


def test_a_target_without_two_pages_is_named(short: Recording, tmp_path: Path) -> None:
    write_recording(
        tmp_path, replace(short, pages=tuple(p for p in short.pages if p.target != "router"))
    )

    with pytest.raises(Misconfigured, match="fewer than two pages of router"):
        read_recording(tmp_path)
