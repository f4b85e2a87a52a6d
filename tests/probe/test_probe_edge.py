"""The probe as a person meets it, with children that play NIXL: codes, one sentence, no rest."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from phasewise import cli

WORDS = Path(__file__).parent / "words"
FAKE = """#!{python}
import json, os, sys
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
def say(event, **values):
    with open(options["--events"], "a") as file:
        file.write(json.dumps({{"event": event, **values}}) + "\\n")
with open({pids!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
here = {{"rdma": []}}
if "--listen" in options:
    say("listening", port=1)
    os.read(0, 1)
    sys.exit()
print(open({words!r}).read(), flush=True)
say("machines", here=here, there=here, same_machine=True)
{body}
"""
WORKS = """
say("no_backend", backend="LIBFABRIC", why="libfabric.so.1 is missing")
say("backend", backend="UCX", created_s=0.5)
for size in options["--sizes"].split(","):
    for handles in options["--handles"].split(","):
        total = int(size) * int(handles)
        say("case", backend="UCX", operation="READ", bytes=int(size), handles=int(handles),
            first_s=0.2, seconds=[total / 2e8] * 5, nixl_seconds=[total / 2e8] * 5,
            nixl_bytes=[total])
say("done")
"""
# the real script, whose channel needs no NIXL
REAL = """#!/bin/sh
exec {python} "$@"
"""


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Makes an engine environment whose Python plays what a test gives it."""

    def make(text: str, **values: object) -> None:
        python = tmp_path / "env" / "bin" / "python"
        python.parent.mkdir(parents=True)
        pids = str(tmp_path / "pids")
        python.write_text(text.format(python=sys.executable, pids=pids, **values))
        python.chmod(0o755)
        monkeypatch.setenv("PHASEWISE_ENGINE_ENV", str(tmp_path / "env"))

    monkeypatch.delenv("UCX_TLS", raising=False)
    return make


def _run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(("probe", *arguments))
    code = caught.value.code or 0
    assert isinstance(code, int)
    return code


def _sentence(capsys) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    return str(line)


def _alive(pids: Path) -> list[int]:
    return [pid for pid in map(int, pids.read_text().split()) if Path(f"/proc/{pid}").exists()]


def test_tcp_gives_the_tier_its_capacity(environment, tmp_path, capsys):
    environment(FAKE, words=str(WORDS / "ucx-1.23-tcp.txt"), body=WORKS)
    file = tmp_path / "found.json"

    assert _run("--ucx-tls", "tcp,self", "--sizes", "1MiB,4MiB", "--json", str(file)) == 0

    shown = capsys.readouterr().out
    assert "bytesPerSecondPerReplica: 200000000" in shown
    assert "libfabric.so.1 is missing" in shown
    found = json.loads(file.read_text())
    assert [(c["transfer_bytes"], c["handles"]) for c in found["cases"]] == [
        *((1 << 20, 1), (1 << 20, 4)),
        *((4 << 20, 1), (4 << 20, 4)),
    ]
    assert found["verdicts"]["UCX"] == {
        "over": "TCP",
        "words": "It went over TCP over lo, as UCX_TLS=tcp,self asks for.",
        "is_fallback": False,
        "evidence": "remote memory read by ucp_get*(multi) into host memory from host: "
        "software emulation tcp/lo",
        "bytes_per_second_per_replica": 200000000,
    }
    assert _alive(tmp_path / "pids") == []


def test_shared_memory_is_no_capacity_of_a_network(environment, capsys):
    environment(FAKE, words=str(WORDS / "ucx-1.23-cma.txt"), body=WORKS)

    assert _run() == 0

    shown = " ".join(capsys.readouterr().out.split())
    assert "shared memory (cma)" in shown
    assert "says nothing of the network" in shown
    assert "bytesPerSecondPerReplica" not in shown


def test_silence_about_the_way_is_unknown(environment, capsys):
    environment(FAKE, words=os.devnull, body=WORKS)

    assert _run() == 0

    shown = " ".join(capsys.readouterr().out.split())
    assert "cannot be told" in shown
    assert "bytesPerSecondPerReplica" not in shown


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('say("failed", why="the data are wrong: byte 8"); sys.exit(1)', "byte 8"),
        ("print('Segmentation fault', flush=True); os.abort()", "Segmentation fault"),
        ("sys.exit(0)", "exit code 0"),
        ("raise ImportError('nixl')", "ImportError: nixl"),
    ],
)
def test_a_side_that_fails_is_one_sentence_and_nothing_runs_on(
    environment, tmp_path, capsys, body, words
):
    environment(FAKE, words=os.devnull, body=body)

    assert _run() == 2
    assert words in _sentence(capsys)
    assert _alive(tmp_path / "pids") == []


def test_a_side_that_hangs_is_ended_at_the_limit(environment, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("serving.local.probe._GRACE_S", 0.0)
    environment(FAKE, words=os.devnull, body="os.read(0, 1)")

    assert _run("--limit", "1") == 2
    assert "did not end in time" in _sentence(capsys)
    assert _alive(tmp_path / "pids") == []


def test_nobody_at_the_other_side(environment, capsys):
    environment(REAL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        where = f"127.0.0.1:{free.getsockname()[1]}"

    assert _run("--to", where) == 2
    assert f"nothing listens at {where}" in _sentence(capsys)


def test_a_place_that_is_taken_cannot_be_listened_at(environment, capsys):
    environment(REAL)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"

        assert _run("--listen", where) == 2

    assert f"{where} cannot be listened at" in _sentence(capsys)


def test_no_engine_environment(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PHASEWISE_ENGINE_ENV", str(tmp_path))

    assert _run() == 2
    assert "the engine environment is not there" in _sentence(capsys)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--sizes", "3"), "--sizes"),
        (("--sizes", "1MB"), "--sizes"),
        (("--sizes", ""), "--sizes"),
        (("--sizes", "5GiB"), "--sizes"),
        (("--sizes", "99999999999999999999KiB"), "--sizes"),
        (("--concurrency", "0"), "--concurrency"),
        (("--concurrency", "65"), "--concurrency"),
        (("--concurrency", "1.5"), "--concurrency"),
        (("--operations", "erase"), "--operations"),
        (("--backends", "../UCX"), "--backends"),
        (("--repetitions", "0"), "--repetitions"),
        (("--limit", "nan"), "--limit"),
        (("--limit", "0"), "--limit"),
        (("--ucx-tls", "tcp; rm"), "--ucx-tls"),
        (("--to", "somewhere"), "--to"),
        (("--to", "somewhere:99999"), "--to"),
        (("--listen", ":80"), "--listen"),
        (("--listen", "a:1", "--to", "b:1"), "one side or the other"),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything_starts(
    environment, tmp_path, capsys, arguments, words
):
    environment(FAKE, words=os.devnull, body=WORKS)

    assert _run(*arguments) == 2
    assert words in _sentence(capsys)
    assert not (tmp_path / "pids").exists()


def test_figures_that_could_not_be_kept_are_not_measured(environment, tmp_path, capsys):
    environment(FAKE, words=os.devnull, body=WORKS)

    assert _run("--json", str(tmp_path / "no" / "such.json")) == 2
    assert "--json" in _sentence(capsys)
    assert not (tmp_path / "pids").exists()
