"""An engine environment that is made without a network: venv, uv and the first import are faked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from serving.local.environment import EngineEnvironment
from serving.local.machine import Machine

GOOD = Machine(
    system="Linux",
    architecture="x86_64",
    implementation="CPython",
    python=(3, 12),
    glibc=(2, 36),
    cpu_flags=frozenset({"avx2", "fma", "f16c", "sse4_2"}),
    missing_libraries=(),
    free_bytes=20_000_000_000,
)
NIXL_LINES = "if True:\n    agent_config.pthrDelay = 0\n    other = 1\n"


class FakeRunner:
    """Stands for venv, uv and the first import: makes the files that they would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.done: list[str] = []
        self.nixl = NIXL_LINES
        self.uv_answer = (0, "")
        self.killed_in: str | None = None

    @property
    def cached(self) -> Path:
        """A file of uv's cache, of which an environment has a hard link."""
        return self.root.parent / "cached.py"

    def __call__(self, argv: Sequence[str], every_second: Callable[[], None]) -> tuple[int, str]:
        step = "venv" if "venv" in argv else "uv" if "pip" in argv else "import"
        self.done.append(step)
        site_packages = self.root / f"lib/python3.{sys.version_info[1]}/site-packages"
        if step == "venv":
            (self.root / "bin").mkdir(parents=True)
            (self.root / "bin/python").write_text("")
            site_packages.mkdir(parents=True)
        if step == "uv" and self.uv_answer[0] == 0:
            (site_packages / "nixl_cu13").mkdir()
            self.cached.write_text(self.nixl)
            os.link(self.cached, site_packages / "nixl_cu13/_api.py")
            (site_packages / "numpy-2.0.dist-info").mkdir()
            every_second()
        if step == self.killed_in:
            raise KeyboardInterrupt
        return self.uv_answer if step == "uv" else (0, "0.32.0+cpu\n")


class Making:
    """An environment in a folder of its own, with everything around it faked."""

    def __init__(self, folder: Path) -> None:
        self.lock = folder / "vllm-cpu.lock"
        self.lock.write_text("numpy==2.0 \\\n    --hash=sha256:00\n")
        self.own = folder / "own"
        (self.own / "steps").mkdir(parents=True)
        (self.own / "steps/__init__.py").write_text("one = 1\n")
        (self.own / "pyproject.toml").write_text(
            '[project]\nname = "my-steps"\nversion = "0.1"\n'
            '[project.entry-points."vllm.stat_logger_plugins"]\nsteps = "steps:Logger"\n'
            '[tool.hatch.build.targets.wheel]\npackages = ["steps"]\n'
        )
        self.root = folder / "cache" / "env"
        self.runner = FakeRunner(self.root)
        self.machine = GOOD
        self.told: list[tuple[str, float | None]] = []

    @property
    def site_packages(self) -> Path:
        return next(self.root.glob("lib/*/site-packages"))

    def environment(self) -> EngineEnvironment:
        return EngineEnvironment(
            self.root,
            lock=self.lock,
            own=[self.own, self.root / "not-there"],
            runner=self.runner,
            machine=lambda folder: self.machine,
        )

    def make(self) -> None:
        self.environment().make(lambda words, share: self.told.append((words, share)))
