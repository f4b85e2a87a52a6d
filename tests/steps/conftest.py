"""The two plugins as vLLM would load them, with a stand-in for vLLM itself."""

from __future__ import annotations

import abc
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from prometheus_client import REGISTRY

ROOT = Path(__file__).parents[2]
MODULES = ("step", "series", "raw_log", "logger")


class StatLoggerBase(abc.ABC):
    """The interface that vLLM 0.32 asks of a stat logger."""

    @abc.abstractmethod
    def __init__(self, vllm_config, engine_index=0): ...

    @abc.abstractmethod
    def record(self, scheduler_stats, iteration_stats, mm_cache_stats=None, engine_idx=0): ...

    @abc.abstractmethod
    def log_engine_initialized(self): ...


class WorkerWrapperBase:
    """What executes steps in a worker of vLLM 0.32."""

    def execute_model(self, scheduler_output):
        return ("executed", scheduler_output)


def _fake_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: dict[str, dict[str, object]] = {
        "vllm.v1.metrics.loggers": {"StatLoggerBase": StatLoggerBase},
        "vllm.v1.worker.worker_base": {
            "WorkerWrapperBase": type("WorkerWrapperBase", (WorkerWrapperBase,), {})
        },
    }
    for name, content in parts.items():
        words = name.split(".")
        for depth in range(1, len(words) + 1):
            package = ".".join(words[:depth])
            if package not in sys.modules:
                module = ModuleType(package)
                module.__path__ = []  # a package, as far as imports ask
                monkeypatch.setitem(sys.modules, package, module)
        for key, value in content.items():
            monkeypatch.setattr(sys.modules[name], key, value, raising=False)


def _forget(package: str) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == package]:
        del sys.modules[name]


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The step exporter, freshly imported; its series leave the registry afterwards."""
    _fake_vllm(monkeypatch)
    monkeypatch.syspath_prepend(str(ROOT / "serving" / "vllm_steps"))
    monkeypatch.delenv("PHASEWISE_STEP_LOG", raising=False)
    before = set(REGISTRY._collector_to_names)
    package = "phasewise_vllm_steps"
    yield SimpleNamespace(**{m: importlib.import_module(f"{package}.{m}") for m in MODULES})
    for collector in set(REGISTRY._collector_to_names) - before:
        REGISTRY.unregister(collector)
    _forget(package)


@pytest.fixture
def delay(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The step delay, freshly imported."""
    _fake_vllm(monkeypatch)
    monkeypatch.syspath_prepend(str(ROOT / "serving" / "local" / "inside" / "step_delay"))
    yield importlib.import_module("phasewise_step_delay")
    _forget("phasewise_step_delay")
