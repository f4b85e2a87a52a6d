"""What a machine must have before an engine environment is made, and one that is in use."""

from __future__ import annotations

import dataclasses
import mmap
import os
import sys
from pathlib import Path

import pytest

from serving.errors import Misconfigured
from serving.local.machine import Machine, process_using, refuse
from tests.local.making import GOOD, Making

REFUSALS = [
    ({"system": "Darwin"}, "found Darwin on x86_64, expected Linux on x86_64"),
    ({"architecture": "aarch64"}, "found Linux on aarch64"),
    ({"python": (3, 15)}, r"found CPython 3\.15, expected CPython 3\.11 to 3\.14"),
    ({"implementation": "PyPy"}, r"found PyPy 3\.12"),
    ({"glibc": None}, r"found another than glibc, expected glibc 2\.34 or newer"),
    ({"glibc": (2, 31)}, r"found 2\.31"),
    ({"cpu_flags": frozenset({"fma"})}, "found no avx2, f16c in /proc/cpuinfo"),
    ({"missing_libraries": ("libnuma.so.1",)}, "on Debian, apt-get install libnuma1"),
    ({"free_bytes": 2_000_000_000}, r"found 2\.0 GB free, expected at least 6\.0 GB"),
]


@pytest.mark.parametrize(("lack", "words"), REFUSALS)
def test_a_machine_that_cannot_run_it_is_told_before_anything_happens(
    making: Making, lack: dict[str, object], words: str
) -> None:
    making.machine = dataclasses.replace(GOOD, **lack)

    with pytest.raises(Misconfigured, match=words) as caught:
        making.make()
    assert str(caught.value).startswith(f"engine environment {making.root}: ")
    assert making.runner.done == []


@pytest.mark.parametrize("python", [(3, 11), (3, 12), (3, 13), (3, 14)])
def test_every_python_that_vllm_runs_on_is_taken(python: tuple[int, int]) -> None:
    refuse(dataclasses.replace(GOOD, python=python), where="here")


def test_this_machine_is_looked_at_as_a_whole(tmp_path: Path) -> None:
    here = Machine.here(tmp_path / "not" / "there")

    assert here.python == sys.version_info[:2]
    assert here.free_bytes > 0
    assert here.cpu_flags


def test_an_environment_in_use_is_not_taken_from_under_its_engines(tmp_path: Path) -> None:
    inside = tmp_path / "bin" / "library"
    inside.parent.mkdir()
    inside.write_bytes(b"x" * 4096)

    with inside.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert process_using(tmp_path) == os.getpid()
    assert process_using(tmp_path) is None
