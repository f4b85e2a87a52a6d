"""Weights are generated once, and come at the rate that is stated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from serving.errors import Misconfigured, Unavailable
from serving.local.environment import EngineEnvironment
from serving.local.weights import ensure_model, fetch_weights, model_name
from serving.schema.local_engine import LocalModel


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.longest_sleep_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.longest_sleep_s = max(self.longest_sleep_s, seconds)


def _source(folder: Path) -> Path:
    (folder / "deep").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(range(250)) * 4000)
    (folder / "deep" / "config.json").write_bytes(b"{}")
    return folder


@pytest.mark.parametrize("rate", [1.0e3, 1.0e5, 3.0e6])
def test_a_cold_cache_takes_as_long_as_the_rate_says(tmp_path: Path, rate: float) -> None:
    time, told = Time(), []
    fetch_weights(
        _source(tmp_path / "source"),
        tmp_path / "cache" / "model",
        rate,
        report=lambda done, total: told.append((done, total)),
        clock=time.clock,
        sleep=time.sleep,
    )

    assert time.now_s - 100.0 == pytest.approx(1_000_002 / rate)
    assert time.longest_sleep_s < 0.2  # it can be watched
    assert told[-1] == (1_000_002, 1_000_002)
    assert (tmp_path / "cache/model/deep/config.json").read_bytes() == b"{}"
    assert (tmp_path / "cache/model/model.safetensors").stat().st_size == 1_000_000
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["model"]


def test_without_a_rate_it_never_waits_and_a_warm_cache_reads_nothing(tmp_path: Path) -> None:
    time = Time()
    source, cache = _source(tmp_path / "source"), tmp_path / "cache"

    fetch_weights(source, cache, None, clock=time.clock, sleep=time.sleep)
    fetch_weights(tmp_path / "gone", cache, 1.0, clock=time.clock, sleep=time.sleep)

    assert time.now_s == 100.0


def test_a_copy_that_is_ended_leaves_no_folder_and_nothing_beside_it(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_weights(_source(tmp_path / "source"), tmp_path / "cache" / "model", None, report=stop)

    assert list((tmp_path / "cache").iterdir()) == []


def test_a_source_without_files_is_said(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="nowhere: no weights there"):
        fetch_weights(tmp_path / "nowhere", tmp_path / "cache", None)


class FakeMaker:
    """Stands for `make_model.py` in the engine environment."""

    def __init__(self, *, status: int = 0) -> None:
        self.commands: list[list[str]] = []
        self.status = status

    def __call__(self, argv: Sequence[str], every_second: Callable[[], None]) -> tuple[int, str]:
        self.commands.append(list(argv))
        (Path(argv[2]) / "config.json").write_text("{}")
        return self.status, "no numpy\n"


def test_a_model_is_made_once_in_a_folder_called_after_its_figures(tmp_path: Path) -> None:
    maker, env = FakeMaker(), EngineEnvironment(tmp_path / "env")
    model = LocalModel(layers=3, seed=7)

    first = ensure_model(env, model, tmp_path / "models", runner=maker)
    second = ensure_model(env, model, tmp_path / "models", runner=maker)

    assert first == second == tmp_path / "models" / model_name(model)
    assert first.name.startswith("3x128-4q2kv64-seed7-")
    assert [path.name for path in first.iterdir()] == ["config.json"]
    assert [path.name for path in (tmp_path / "models").iterdir()] == [first.name]
    [command] = maker.commands
    assert command[0] == str(tmp_path / "env/bin/python")
    assert command[3:] == [
        *("--layers", "3", "--hidden-size", "128", "--attention-heads", "4"),
        *("--kv-heads", "2", "--head-dim", "64", "--seed", "7"),
    ]


def test_a_model_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be made: no numpy"):
        ensure_model(
            EngineEnvironment(tmp_path / "env"),
            LocalModel(),
            tmp_path / "models",
            runner=FakeMaker(status=1),
        )

    assert list((tmp_path / "models").iterdir()) == []


def test_every_figure_of_a_model_is_in_its_name() -> None:
    models = [
        LocalModel(),
        LocalModel(layers=3),
        LocalModel(hidden_size=256),
        LocalModel(attention_heads=8),
        LocalModel(kv_heads=4),
        LocalModel(head_dim=32),
        LocalModel(seed=1),
    ]

    assert len({model_name(model) for model in models}) == len(models)
    assert len(models) == 1 + len(LocalModel.model_fields)
