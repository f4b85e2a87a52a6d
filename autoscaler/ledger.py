"""The book of every tick: what was seen, what was planned, and enough state to start again.

SQLite in WAL mode, one transaction for each tick, committed before anyone acts on the plan: after
a kill at any instant the book holds every finished tick. Full states are kept every ten minutes
and at every start; between them a state is reached by folding the observations. Bounded in age
and size: whole stretches go, oldest first, so that what is left can always be replayed.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from autoscaler.codec import (
    dump_observations,
    dump_plan,
    dump_settings,
    dump_state,
    load_observations,
    load_plan,
    load_settings,
    load_state,
    state_hash,
)
from autoscaler.recorded import RecordedTick
from autoscaler.state import LearnedState
from autoscaler.types import Plan, TierSettings
from autoscaler.writer_lock import WriterLock
from serving.errors import Misconfigured, Unavailable
from serving.types import Observation

FULL_STATE_EVERY_S = 600.0
_FORMAT = "1"
_T = TypeVar("_T")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ticks (
  epoch INTEGER PRIMARY KEY, at_s REAL NOT NULL, observations BLOB NOT NULL, plan BLOB NOT NULL,
  state_hash TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS states (
  epoch INTEGER NOT NULL, at_s REAL NOT NULL, version TEXT NOT NULL, settings BLOB NOT NULL,
  state BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS states_by_epoch ON states (epoch);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedState:
    """A full state after the tick `epoch` (0: before any), with the settings in force since."""

    epoch: int
    version: str
    settings: TierSettings
    state: LearnedState


class Ledger:
    """One tier's ledger file: one writer at a time, by a lock, and any number of readers.

    `fresh` begins a new file in place of the old one. Faults of the file are Misconfigured; what
    could not be written is Unavailable, and then nothing of that tick is in the file.
    """

    def __init__(self, path: Path, *, read_only: bool = False, fresh: bool = False) -> None:
        self.path = path
        self._lock: WriterLock | None = None
        self._last_full_s: float | None = None
        if read_only and not path.is_file():
            raise Misconfigured(
                "there is no ledger", where=str(path), found="no such file", expected="a ledger"
            )
        try:
            if read_only:
                self._db = _open_to_read(path)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._lock = WriterLock(path)
                if fresh:
                    for suffix in ("", "-wal", "-shm"):
                        path.with_name(path.name + suffix).unlink(missing_ok=True)
                self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                self._prepare()
            row = self._db.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise Misconfigured(
                "the ledger cannot be opened",
                where=str(path),
                found=str(error),
                expected="an SQLite file of this program, in a folder that can be written",
            ) from error
        if row is None or row[0] != _FORMAT:
            self.close()
            raise Misconfigured(
                "the ledger has another format",
                where=str(path),
                found="none" if row is None else f"format {row[0]}",
                expected=f"format {_FORMAT}",
            )

    def _prepare(self) -> None:
        """Make the tables of a new file; somebody else's database is left as it is."""
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}
        if tables and "meta" not in tables:
            raise sqlite3.DatabaseError("a database of something else")
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)
        if not tables:
            self._db.execute("INSERT INTO meta VALUES ('format', ?)", (_FORMAT,))

    def close(self) -> None:
        """Close the file; every finished tick is in it already."""
        if hasattr(self, "_db"):
            self._db.close()
        if self._lock is not None:
            self._lock.release()

    def begin(self, state: LearnedState, settings: TierSettings, *, version: str) -> None:
        """Write down the state that a run starts from, and the settings that hold from here."""
        at_s = state.now_s or 0.0
        with self._transaction():
            self._write_state(state, settings, version=version, at_s=at_s)
        self._last_full_s = at_s

    def append(
        self,
        observations: Sequence[Observation],
        plan: Plan,
        state: LearnedState,
        settings: TierSettings,
        *,
        version: str,
    ) -> None:
        """Write down one finished tick; on return it survives a kill of this process."""
        full = self._last_full_s is None or plan.at_s - self._last_full_s >= FULL_STATE_EVERY_S
        with self._transaction():
            self._db.execute(
                "INSERT INTO ticks VALUES (?, ?, ?, ?, ?)",
                (
                    plan.epoch,
                    plan.at_s,
                    zlib.compress(dump_observations(observations), 6),
                    zlib.compress(dump_plan(plan), 6),
                    state_hash(state),
                ),
            )
            if full:
                self._write_state(state, settings, version=version, at_s=plan.at_s)
        if full:
            self._last_full_s = plan.at_s

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of it or nothing; what SQLite refuses is Unavailable."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise Unavailable(f"{self.path} cannot be written: {error}") from error
            raise

    def _write_state(
        self, state: LearnedState, settings: TierSettings, *, version: str, at_s: float
    ) -> None:
        self._db.execute(
            "INSERT INTO states VALUES (?, ?, ?, ?, ?)",
            (
                state.epoch,
                at_s,
                version,
                dump_settings(settings),
                zlib.compress(dump_state(state), 6),
            ),
        )

    def _rows(self, query: str, *arguments: int) -> Iterator[tuple[Any, ...]]:
        """Every query goes through here; a row that cannot be read is a damaged file."""
        try:
            for row in self._db.execute(query, arguments):  # noqa: UP028 - it would close the cursor
                yield row
        except sqlite3.Error as error:
            raise Misconfigured(
                "the ledger is damaged",
                where=str(self.path),
                found=str(error),
                expected="a whole SQLite file",
            ) from error

    def _all(self, query: str, *arguments: int) -> list[tuple[Any, ...]]:
        return list(self._rows(query, *arguments))

    def _one(self, query: str, *arguments: int) -> tuple[Any, ...] | None:
        rows = self._all(query, *arguments)
        return rows[0] if rows else None

    def states(self) -> Iterator[RecordedState]:
        """The full states, oldest first."""
        rows = self._rows("SELECT epoch, version, settings, state FROM states ORDER BY rowid")
        for row in rows:
            yield self._state(row)

    def last_state(self) -> RecordedState | None:
        """The newest full state, or `None` in a new ledger."""
        row = self._one(
            "SELECT epoch, version, settings, state FROM states ORDER BY rowid DESC LIMIT 1"
        )
        return None if row is None else self._state(row)

    def _state(self, row: tuple[Any, ...]) -> RecordedState:
        epoch, version, settings, state = row
        return RecordedState(
            epoch=self._written(epoch, int),
            version=self._written(version, str),
            settings=load_settings(self._written(settings, bytes)),
            state=load_state(self._unpack(state)),
        )

    def ticks(self, *, after_epoch: int = 0) -> Iterator[RecordedTick]:
        """The ticks after an epoch, oldest first."""
        rows = self._rows(
            "SELECT epoch, at_s, observations, plan, state_hash FROM ticks "
            "WHERE epoch > ? ORDER BY epoch",
            after_epoch,
        )
        for row in rows:
            yield self._tick(row)

    def newest_ticks(self, count: int) -> tuple[RecordedTick, ...]:
        """The last ticks, at most `count` of them, oldest first."""
        rows = self._all(
            "SELECT epoch, at_s, observations, plan, state_hash FROM ticks "
            "ORDER BY epoch DESC LIMIT ?",
            count,
        )
        return tuple(self._tick(row) for row in reversed(rows))

    def tick(self, epoch: int) -> RecordedTick | None:
        """One tick, or `None` if the ledger does not hold it (any more)."""
        row = self._one(
            "SELECT epoch, at_s, observations, plan, state_hash FROM ticks WHERE epoch = ?", epoch
        )
        return None if row is None else self._tick(row)

    def settings_at(self, epoch: int) -> TierSettings | None:
        """The settings that a tick was planned with, or `None` in a new ledger."""
        row = self._one(
            "SELECT settings FROM states WHERE epoch < ? ORDER BY rowid DESC LIMIT 1", epoch
        )
        return None if row is None else load_settings(self._written(row[0], bytes))

    def _tick(self, row: tuple[Any, ...]) -> RecordedTick:
        epoch, at_s, observations, plan, name = row
        return RecordedTick(
            epoch=self._written(epoch, int),
            at_s=self._written(at_s, float),
            observations=load_observations(self._unpack(observations)),
            plan=load_plan(self._unpack(plan)),
            state_hash=self._written(name, str),
        )

    def _unpack(self, value: object) -> bytes:
        try:
            return zlib.decompress(self._written(value, bytes))
        except zlib.error as error:
            raise self._damaged(str(error)) from error

    def _written(self, value: object, kind: type[_T]) -> _T:
        """A value of a row, which SQLite may give as of any type."""
        if not isinstance(value, kind):
            raise self._damaged(f"{type(value).__name__} where {kind.__name__} belongs")
        return value

    def _damaged(self, found: str) -> Misconfigured:
        return Misconfigured(
            "a row of the ledger is damaged",
            where=str(self.path),
            found=found,
            expected="what was written",
        )

    def trim(self, *, now_s: float, max_age_s: float, max_bytes: int) -> int:
        """Drop the oldest stretches past the bounds; returns how many ticks went.

        A stretch runs from one full state to the next; the newest one always stays.
        """
        dropped = 0
        while True:
            starts = self._all("SELECT rowid, epoch, at_s FROM states ORDER BY rowid LIMIT 2")
            ((used_bytes,),) = self._all(
                "SELECT (page_count - freelist_count) * page_size "
                "FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
            )
            if len(starts) < 2:
                return dropped
            (first, _, _), (_, epoch, began_s) = starts
            too_old = self._written(began_s, float) < now_s - max_age_s
            if not (too_old or used_bytes > max_bytes):
                return dropped
            with self._transaction():
                gone = self._db.execute("DELETE FROM ticks WHERE epoch <= ?", (epoch,))
                self._db.execute("DELETE FROM states WHERE rowid = ?", (first,))
            dropped += gone.rowcount


def _open_to_read(path: Path) -> sqlite3.Connection:
    """Open a file for reading, also in a folder that cannot be written.

    SQLite wants to put its shared memory beside a file in WAL mode. Where it cannot, a file without
    a log is whole by itself, and nobody writes it.
    """
    where = f"{path.absolute().as_uri()}?mode=ro"
    db = sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False)
    try:
        db.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        db.close()
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise
        return sqlite3.connect(
            where + "&immutable=1", uri=True, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error:
        db.close()
        raise
    return db
