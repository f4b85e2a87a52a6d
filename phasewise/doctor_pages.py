"""Saved metric pages of a folder as the doctor's targets: each file is one, whatever is in it.

Reads files, and nothing else.
"""

from __future__ import annotations

from pathlib import Path

from collector.evidence import read_everything
from collector.scrape import MAX_PAGE_BYTES
from phasewise.doctor_targets import Target
from serving.errors import Misconfigured, Unavailable

SUFFIXES = (".prom", ".txt", ".metrics")
_MOST_FILES = 1000


def targets_in(folder: Path) -> tuple[Target, ...]:
    """A target for each page in a folder and below it, by name.

    Raises `Misconfigured` if there is no such folder, or no page in it.
    """
    if not folder.is_dir():
        raise Misconfigured(
            "no such folder", where=str(folder), found="none", expected="a folder of saved pages"
        )
    files = sorted(f for f in folder.rglob("*") if f.suffix in SUFFIXES and f.is_file())
    if not files or len(files) > _MOST_FILES:
        raise Misconfigured(
            "no pages to look at" if not files else "too many pages",
            where=str(folder),
            found=f"{len(files)} files",
            expected=f"1 to {_MOST_FILES} files named {', '.join(f'*{s}' for s in SUFFIXES)}",
        )
    return tuple(_target(file, file.relative_to(folder).as_posix()) for file in files)


def _target(file: Path, name: str) -> Target:
    try:
        with file.open("rb") as opened:
            body = opened.read(MAX_PAGE_BYTES + 1)
        if len(body) > MAX_PAGE_BYTES:
            raise Unavailable(f"larger than {MAX_PAGE_BYTES} bytes")
        return Target(name=name, where=str(file), page=read_everything(body))
    except OSError as error:
        why = error.strerror or type(error).__name__
        return Target(name=name, where=str(file), problem=f"cannot be read: {why}")
    except Unavailable as error:
        return Target(name=name, where=str(file), problem=error.what)
