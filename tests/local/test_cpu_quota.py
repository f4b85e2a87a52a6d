"""Limits on CPU by control groups, over folders that stand for the kernel's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from serving.errors import Unavailable
from serving.local.cpu_quota import CpuGroup, make_group


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control group's files go with its folder, unlike those of others."""
    monkeypatch.setattr(Path, "rmdir", shutil.rmtree)
    monkeypatch.setattr("serving.local.cpu_quota._LEAVE_S", 0.0)


def first(folder: Path, controllers: str = "cpu,cpuacct") -> str:
    folder.mkdir(exist_ok=True)
    return f"cgroup {folder} cgroup rw,nosuid,nodev,noexec,{controllers} 0 0\n"


def second(folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    return f"cgroup2 {folder} cgroup2 rw,nosuid,nsdelegate 0 0\n"


@pytest.mark.parametrize(
    ("cores", "quota"),
    [(0.5, 50_000), (1.0, 100_000), (2.5, 250_000), (0.001, 1_000)],  # the kernel's least: 1 ms
)
def test_the_quota_is_that_share_of_a_tenth_of_a_second(
    tmp_path: Path, cores: float, quota: int
) -> None:
    old = make_group("one", cores, mounts=first(tmp_path / "v1")).folder
    new = make_group("one", cores, mounts=second(tmp_path / "v2")).folder

    assert (old / "cpu.cfs_period_us").read_text() == "100000"
    assert (old / "cpu.cfs_quota_us").read_text() == str(quota)
    assert (new / "cpu.max").read_text() == f"{quota} 100000"
    assert (old, new) == (tmp_path / "v1" / "one", tmp_path / "v2" / "one")


def test_where_both_are_mounted_the_one_that_has_the_controller_is_taken(tmp_path: Path) -> None:
    mounts = second(tmp_path / "v2") + first(tmp_path / "v1")

    assert make_group("one", 1.0, mounts=mounts).folder.parent == tmp_path / "v1"


def test_a_hierarchy_of_other_controllers_is_none(tmp_path: Path) -> None:
    mounts = "short line\n" + first(tmp_path / "set", "cpuset") + first(tmp_path / "mem", "memory")

    with pytest.raises(Unavailable, match="no control group with a cpu controller"):
        make_group("one", 1.0, mounts=mounts + f"/dev/sda1 {tmp_path} ext4 rw,cpu 0 0\n")
    assert list(tmp_path.glob("*/one")) == []


def test_what_may_not_be_written_is_passed_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = first(tmp_path / "v1") + second(tmp_path / "v2")
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path / "v1")

    assert make_group("one", 1.0, mounts=mounts).folder.parent == tmp_path / "v2"


def test_a_group_that_takes_no_limit_is_taken_away_and_the_next_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Path.write_text

    def refuse(path: Path, text: str) -> int:
        if path.name.startswith("cpu.cfs"):
            raise PermissionError(13, "Permission denied")
        return written(path, text)

    monkeypatch.setattr(Path, "write_text", refuse)
    mounts = first(tmp_path / "v1") + second(tmp_path / "v2")

    assert make_group("one", 1.0, mounts=mounts).folder.parent == tmp_path / "v2"
    assert list((tmp_path / "v1").iterdir()) == []
    with pytest.raises(Unavailable, match="v1/two: Permission denied"):
        make_group("two", 1.0, mounts=first(tmp_path / "v1"))
    assert list((tmp_path / "v1").iterdir()) == []


def test_a_group_of_that_name_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "v1" / "one").mkdir(parents=True)

    with pytest.raises(Unavailable, match="File exists"):
        make_group("one", 1.0, mounts=first(tmp_path / "v1"))
    assert (tmp_path / "v1" / "one").is_dir()


def test_processes_are_put_in_one_by_one_and_one_that_has_ended_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = make_group("one", 1.0, mounts=second(tmp_path / "v2"))
    held: list[tuple[Path, str]] = []

    def write(path: Path, text: str) -> int:
        if text == "8\n":
            raise ProcessLookupError
        held.append((path, text))
        return len(text)

    monkeypatch.setattr(Path, "write_text", write)
    group.hold([7, 8, 9])

    processes = tmp_path / "v2" / "one" / "cgroup.procs"
    assert held == [(processes, "7\n"), (processes, "9\n")]


def test_a_group_is_taken_away_once(tmp_path: Path) -> None:
    group = make_group("one", 1.0, mounts=first(tmp_path / "v1"))

    assert group.remove()
    assert not group.folder.exists()
    assert group.remove()


def test_a_group_that_still_holds_a_process_stays_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(_: Path) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "rmdir", busy)

    assert not CpuGroup(tmp_path).remove()
    assert tmp_path.exists()


def test_one_whose_last_process_is_just_leaving_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def leaving(path: Path) -> None:
        tries.append(path)
        if len(tries) < 3:
            raise OSError(16, "Device or resource busy")
        shutil.rmtree(path)

    monkeypatch.setattr(Path, "rmdir", leaving)
    monkeypatch.setattr("serving.local.cpu_quota._LEAVE_S", 30.0)
    monkeypatch.setattr("serving.local.cpu_quota.time.sleep", lambda _: None)
    group = CpuGroup(tmp_path / "one")
    group.folder.mkdir()

    assert group.remove()
    assert len(tries) == 3
