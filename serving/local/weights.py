"""The weights of a local replica: generated once, and fetched from their source into its cache.

A generated model's folder is called after its figures, and is complete or not there: it is written
beside and renamed. Fetching is a copy at a stated rate, which is what an empty cache costs where
weights come over a network.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from serving.errors import Misconfigured, Unavailable
from serving.local.environment import HERE, EngineEnvironment
from serving.local.installing import Runner, last_line, run
from serving.schema.local_engine import LocalModel

MAKER: Final = HERE / "inside" / "make_model.py"
_PART_BYTES = 256 * 1024
_SHORTEST_PART_S = 0.1


def model_name(model: LocalModel) -> str:
    """Its figures, and a hash of the script that makes it: another one makes other weights."""
    maker = hashlib.sha256(MAKER.read_bytes()).hexdigest()[:8]
    return (
        f"{model.layers}x{model.hidden_size}-{model.attention_heads}q{model.kv_heads}kv"
        f"{model.head_dim}-seed{model.seed}-{maker}"
    )


def ensure_model(
    env: EngineEnvironment, model: LocalModel, cache: Path, *, runner: Runner = run
) -> Path:
    """The folder of the generated model, which is made in about a second if it is not there."""
    folder = cache.absolute() / model_name(model)
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    beside = Path(mkdtemp(prefix=f".{folder.name}-", dir=cache.absolute()))
    try:
        figures = [
            word
            for name, value in model.model_dump().items()
            for word in (f"--{name.replace('_', '-')}", str(value))
        ]
        status, output = runner([str(env.python), str(MAKER), str(beside), *figures], lambda: None)
        if status != 0:
            raise Unavailable(f"the model {folder.name} cannot be made: {last_line(output)}")
        beside.chmod(0o755)
        _rename(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def fetch_weights(
    source: Path,
    into: Path,
    bytes_per_second: float | None,
    *,
    report: Callable[[int, int], None] = lambda done, total: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Copy the files of a folder into another, no faster than the rate (as fast as it goes: None).

    Does nothing if the other is there: the cache is warm. `report` is told bytes done and bytes
    in all. `Misconfigured` if there is no such source, `Unavailable` if the copy fails.
    """
    if into.exists():
        return
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else []
    if not files:
        raise Misconfigured(
            "no weights there", where=str(source), found="no files", expected="a model's folder"
        )
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(mkdtemp(prefix=f".{into.name}-", dir=into.parent))
    except OSError as error:
        raise Unavailable(f"weights cannot be put at {into}: {error.strerror}") from error
    total = sum(path.stat().st_size for path in files)
    pace = _Pace(bytes_per_second, clock, sleep)
    try:
        for path in files:
            target = beside / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as whence, target.open("wb") as to:
                while part := whence.read(pace.part_bytes):
                    to.write(part)
                    report(pace.moved(len(part)), total)
        beside.chmod(0o755)
        _rename(beside, into)
    except OSError as error:
        raise Unavailable(f"weights cannot be copied to {into}: {error.strerror}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


class _Pace:
    """Sleeps as long as what has moved is ahead of the rate."""

    def __init__(
        self,
        bytes_per_second: float | None,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._start_s = clock()
        self._bytes = 0
        slow = _PART_BYTES if bytes_per_second is None else bytes_per_second * _SHORTEST_PART_S
        self.part_bytes = max(1, min(_PART_BYTES, int(slow)))

    def moved(self, count: int) -> int:
        """Count these bytes, wait if they came too soon, and return all that have moved."""
        self._bytes += count
        if self._rate is not None:
            early_s = self._bytes / self._rate - (self._clock() - self._start_s)
            if early_s > 0.0:
                self._sleep(early_s)
        return self._bytes


def _rename(beside: Path, to: Path) -> None:
    """Put a complete folder in its place; if another process was first, its is as good."""
    try:
        beside.rename(to)
    except OSError:
        if not to.is_dir():
            raise
