"""Real peers for tests: Prometheus from Debian's package, over a simulated tier on loopback.

Everything is started by hand in a temporary folder and ended with its test. A test is skipped,
with the reason, where the program is not installed.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

STARTS_WITHIN_S = 60.0
ROOT = Path(__file__).parents[2]


def program(name: str) -> str:
    """The path of a program of Debian's packages `prometheus` and `prometheus-alertmanager`."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: prometheus, prometheus-alertmanager)")
    return found


def free_port() -> int:
    """A port that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


def get_json(url: str) -> Any:
    """The JSON that a GET answers with; the answer's own error text in the exception."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        error.close()
        raise AssertionError(f"{url}: {error.code}: {text}") from None


def wait_until(done: Callable[[], bool], what: str, within_s: float = STARTS_WITHIN_S) -> None:
    """Ask again and again until it is so; fails with what was waited for."""
    until = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < until, f"{what}: not within {within_s:g} s"
        time.sleep(0.1)


@dataclass
class Prometheus:
    """A running Prometheus: its address and its folder."""

    url: str
    folder: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    def query(self, expr: str, *, at_s: float | None = None) -> list[dict[str, Any]]:
        """The instant vector of an expression: `{"metric": …, "value": [t, "v"]}` each."""
        asked = {"query": expr} | ({} if at_s is None else {"time": repr(at_s)})
        answer = get_json(f"{self.url}/api/v1/query?{urllib.parse.urlencode(asked)}")
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def query_range(
        self, expr: str, *, start_s: float, end_s: float, step_s: float
    ) -> list[dict[str, Any]]:
        """The matrix of an expression: `{"metric": …, "values": [[t, "v"], …]}` each."""
        asked = {"query": expr, "start": repr(start_s), "end": repr(end_s), "step": repr(step_s)}
        answer = get_json(f"{self.url}/api/v1/query_range?{urllib.parse.urlencode(asked)}")
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def has_data(self, expr: str) -> bool:
        """Does the expression have an answer now?"""
        return bool(self.query(expr))

    def wait_for(self, done: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
        """Wait until something is so."""
        wait_until(done, what, within_s)

    def ready(self) -> bool:
        """Does it answer? Fails when it has ended."""
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


class StartPrometheus(Protocol):
    """What the fixture `start_prometheus` gives."""

    def __call__(
        self, config: Mapping[str, Any], *, data: Path | None = None, flags: Sequence[str] = ()
    ) -> Prometheus:
        """Start one with this configuration; `data` is a folder of blocks to serve."""
        ...


@pytest.fixture
def start_prometheus(tmp_path: Path) -> Iterator[StartPrometheus]:
    binary = program("prometheus")
    running: list[subprocess.Popen[bytes]] = []

    def start(
        config: Mapping[str, Any], *, data: Path | None = None, flags: Sequence[str] = ()
    ) -> Prometheus:
        folder = tmp_path / f"prometheus-{len(running)}"
        folder.mkdir()
        (folder / "prometheus.yml").write_text(yaml.safe_dump(dict(config)))
        port = free_port()
        arguments = [
            binary,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={data or folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-lifecycle",
            *flags,
        ]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT)
        running.append(process)
        one = Prometheus(url=f"http://127.0.0.1:{port}", folder=folder, process=process)
        wait_until(one.ready, "Prometheus answers")
        return one

    yield start
    for process in running:
        end(process)


@dataclass(frozen=True)
class RunningTier:
    """A `phasewise simulate`: its control endpoint and its list of targets."""

    control: str
    http_sd: str


@pytest.fixture
def simulated_tier(request: pytest.FixtureRequest) -> Iterator[RunningTier]:
    """A tier on the wall clock; parametrize indirectly with more arguments for the command."""
    arguments: Sequence[str] = getattr(request, "param", ("--speed", "5"))
    process = subprocess.Popen(
        [sys.executable, "-m", "phasewise", "simulate", *arguments],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        yield RunningTier(control=found["control"], http_sd=found["http_sd"])
    finally:
        end(process)
        if process.stdout is not None:
            process.stdout.close()


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that a test started."""
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def scraping(
    tier: RunningTier, *, rule_files: Sequence[Path] = (), interval: str = "1s"
) -> dict[str, Any]:
    """A configuration that finds the tier by its http_sd."""
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [str(file) for file in rule_files],
        "scrape_configs": [
            {
                "job_name": "tier",
                "http_sd_configs": [{"url": tier.http_sd, "refresh_interval": "1s"}],
            }
        ],
    }


@pytest.fixture
def prometheus(start_prometheus: StartPrometheus, simulated_tier: RunningTier) -> Prometheus:
    """A Prometheus that scrapes a simulated tier every second."""
    return start_prometheus(scraping(simulated_tier))
