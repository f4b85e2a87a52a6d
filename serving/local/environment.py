"""The engines' own Python environment: vLLM for CPUs, NIXL and vllm-router, pinned with hashes.

It is made once, below the working folder, and is never the environment that phasewise runs in.
What is in it and why is in `docs/local.md`. Making it again does only what is not done: a stamp
holds a hash of all that went in. A making that was killed leaves no stamp and its unpacking is
thrown away; what it downloaded is in uv's cache and is not downloaded again. Two at once wait for
each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from serving.errors import Misconfigured
from serving.local import plain_install
from serving.local.installing import Progress, Report, Runner, find_uv, last_line, refusal, run
from serving.local.machine import Machine, process_using, refuse

VARIABLE: Final = "PHASEWISE_ENGINE_ENV"
DEFAULT_FOLDER: Final = Path(".cache") / "vllm-cpu"
VLLM_VERSION: Final = "0.32.0+cpu"
HERE: Final = Path(__file__).parent
LOCK: Final = HERE / "vllm-cpu.lock"
OWN: Final = (HERE.parent / "vllm_steps", HERE / "inside" / "step_delay")

_NIXL_FILE = Path("nixl_cu13") / "_api.py"
_BUSY = "agent_config.pthrDelay = 0\n"
_OURS = (".phasewise", ".packages", ".ready")
_PAUSING = 'agent_config.pthrDelay = int(__import__("os").environ.get("NIXL_PTHR_DELAY_US", "0"))\n'
_FIRST_IMPORT = (
    "import importlib.metadata, vllm.entrypoints.openai.api_server, vllm.v1.engine.core, "
    "vllm.v1.worker.cpu_worker, vllm.model_executor.models.qwen3, transformers.models.qwen3, "
    "vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector, nixl._api, vllm_router, zmq; "
    "print(importlib.metadata.version('vllm'))"
)


def default_root() -> Path:
    """Where the environment is: the variable `PHASEWISE_ENGINE_ENV`, else `.cache/vllm-cpu`."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else DEFAULT_FOLDER


class EngineEnvironment:
    """The environment in a folder, there or not. The last three arguments are for tests."""

    def __init__(
        self,
        root: Path,
        *,
        lock: Path = LOCK,
        own: Sequence[Path] = OWN,
        runner: Runner = run,
        machine: Callable[[Path], Machine] = Machine.here,
    ) -> None:
        self.root = root.absolute()
        self._lock = lock
        self._own = own
        self._runner = runner
        self._machine = machine

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.root / "bin" / "python"

    @property
    def ready(self) -> bool:
        """Whether it is complete and made of what is pinned now."""
        return self.python.exists() and self._stamped("ready", self._wanted_all())

    def make(self, report: Report) -> None:
        """Make it, or do nothing if it is ready.

        `Misconfigured` if it cannot be made on this machine, `Unavailable` if the packages cannot
        be had now.
        """
        if self.ready:
            return
        with self._alone(report):
            if self.ready:
                return
            if not (self.python.exists() and self._stamped("packages", self._wanted_packages())):
                self._install_packages(report)
            self._finish(report)
            self._stamp("ready", self._wanted_all())
            report("engine environment is ready", 1.0)

    def _install_packages(self, report: Report) -> None:
        where = f"engine environment {self.root}"
        refuse(self._machine(self.root), where=where)
        uv = find_uv()
        if user := process_using(self.root):
            raise Misconfigured(
                "the engine environment has to be made anew, and is in use",
                where=where,
                found=f"process {user} runs from it",
                expected="no engine; `phasewise local down` ends a tier",
            )
        self._refuse_another_folder(where)
        report("making the engine environment", 0.0)
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        (self.root / _OURS[0]).touch()  # first: one that is killed half made is ours too
        command = [sys.executable, "-m", "venv", "--without-pip", str(self.root)]
        status, output = self._runner(command, lambda: None)
        if status != 0:
            raise Misconfigured(
                "no virtual environment can be made",
                where=where,
                found=last_line(output),
                expected="a Python with its venv module",
            )
        progress = Progress(self.root, self._lock.read_text(encoding="utf-8"), report)
        flags = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--quiet"]
        status, output = self._runner(
            [uv, "pip", "install", "--python", str(self.python), *flags, "-r", str(self._lock)],
            progress.tell,
        )
        if status != 0:
            raise refusal(output, where=where)
        self._stamp("packages", self._wanted_packages())

    def _refuse_another_folder(self, where: str) -> None:
        """Only what was made here may be taken away."""
        if not self.root.exists() or any((self.root / name).exists() for name in _OURS):
            return
        kept = "a file" if not self.root.is_dir() else next(self.root.iterdir(), None)
        if kept is not None:
            raise Misconfigured(
                "this folder is not an engine environment, and would be emptied",
                where=where,
                found=kept if isinstance(kept, str) else kept.name,
                expected="a folder that is not there yet, or is empty",
            )

    def _finish(self, report: Report) -> None:
        """What takes no network: again whenever something of ours has changed."""
        site_packages = self._site_packages()
        report("preparing the engine environment", 0.9)
        _pause_progress_thread(site_packages / _NIXL_FILE)
        plain_install.write_metadata(site_packages, name="vllm", version=VLLM_VERSION)
        for source in self._there():
            plain_install.install(source, site_packages)
        report("importing vLLM for the first time", 0.93)
        status, output = self._runner([str(self.python), "-c", _FIRST_IMPORT], lambda: None)
        if status != 0:
            raise Misconfigured(
                "vLLM cannot be imported",
                where=f"engine environment {self.root}",
                found=last_line(output),
                expected=f"vLLM {VLLM_VERSION}; remove the folder and make it again",
            )

    def _site_packages(self) -> Path:
        names = {"base": str(self.root), "platbase": str(self.root)}
        return Path(sysconfig.get_path("platlib", "venv", vars=names))

    def _there(self) -> list[Path]:
        return [source for source in self._own if (source / "pyproject.toml").exists()]

    def _wanted_packages(self) -> str:
        text = f"{sys.version_info[:2]}\n{self._lock.read_text(encoding='utf-8')}"
        return hashlib.sha256(text.encode()).hexdigest()

    def _wanted_all(self) -> str:
        parts = (
            self._wanted_packages(),
            _PAUSING,
            VLLM_VERSION,
            plain_install.digest(self._there()),
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _stamped(self, name: str, wanted: str) -> bool:
        try:
            return (self.root / f".{name}").read_text(encoding="utf-8") == wanted
        except OSError:
            return False

    def _stamp(self, name: str, value: str) -> None:
        beside = self.root / f".{name}.new"
        beside.write_text(value, encoding="utf-8")
        beside.replace(self.root / f".{name}")

    @contextmanager
    def _alone(self, report: Report) -> Iterator[None]:
        """One process at a time; the lock goes with the process, however that ends."""
        try:
            if self.root.exists():
                self.root.mkdir(exist_ok=True)  # not a plain file
            self.root.parent.mkdir(parents=True, exist_ok=True)
            lock = (self.root.parent / f"{self.root.name}.lock").open("w")
        except OSError as error:
            raise Misconfigured(
                "the engine environment cannot be made there",
                where=VARIABLE,
                found=f"{self.root} ({error.strerror})",
                expected="a folder that can be made and written",
            ) from error
        with lock as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report("waiting for another process that makes the engine environment", None)
                fcntl.flock(held, fcntl.LOCK_EX)
            yield


def _pause_progress_thread(path: Path) -> None:
    """NIXL's Python gives its progress thread no pause and no way to ask for one: it gets one.

    Written beside and renamed, for the file may be one with that in uv's cache.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Misconfigured(
            "NIXL is not where it should be",
            where=str(path),
            found=str(error.strerror),
            expected="a readable file of nixl-cu13",
        ) from error
    if _PAUSING in text:
        return
    if text.count(_BUSY) != 1:
        raise Misconfigured(
            "not the NIXL that the pause of its progress thread was written for",
            where=str(path),
            found=f"{text.count(_BUSY)} lines {_BUSY.strip()!r}",
            expected="exactly one",
        )
    beside = path.with_suffix(".new")
    beside.write_text(text.replace(_BUSY, _PAUSING), encoding="utf-8")
    beside.replace(path)
