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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from serving.errors import Misconfigured
from serving.types import Observation

FULL_STATE_EVERY_S = 600.0
_FORMAT = "1"
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
    """One tier's ledger file. Not for use from several processes at once, except for reading."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        if read_only and not path.is_file():
            raise Misconfigured(
                "there is no ledger", where=str(path), found="no such file", expected="a ledger"
            )
        try:
            self._db = _connect(path, read_only=read_only)
            if not read_only:
                self._prepare()
            row = self._db.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
        except (sqlite3.Error, OSError) as error:
            raise Misconfigured(
                "the ledger cannot be opened",
                where=str(path),
                found=str(error),
                expected="an SQLite file of this program, in a folder that can be written",
            ) from error
        if row is None or row[0] != _FORMAT:
            raise Misconfigured(
                "the ledger has another format",
                where=str(path),
                found="none" if row is None else f"format {row[0]}",
                expected=f"format {_FORMAT}",
            )
        self._last_full_s: float | None = None

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
        self._db.close()

    def begin(self, state: LearnedState, settings: TierSettings, *, version: str) -> None:
        """Write down the state that a run starts from, and the settings that hold from here."""
        self._write_state(state, settings, version=version, at_s=state.now_s or 0.0)

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
        self._db.execute("BEGIN IMMEDIATE")
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
        if self._last_full_s is None or plan.at_s - self._last_full_s >= FULL_STATE_EVERY_S:
            self._write_state(state, settings, version=version, at_s=plan.at_s)
        self._db.execute("COMMIT")

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
        self._last_full_s = at_s

    def _rows(self, query: str, *arguments: int) -> Iterator[tuple[Any, ...]]:
        try:
            for row in self._db.execute(query, arguments):  # noqa: UP028 - it would close the cursor
                yield row
        except sqlite3.DatabaseError as error:
            raise Misconfigured(
                "the ledger is damaged",
                where=str(self.path),
                found=str(error),
                expected="a whole SQLite file",
            ) from error

    def states(self) -> Iterator[RecordedState]:
        """The full states, oldest first."""
        rows = self._rows("SELECT epoch, version, settings, state FROM states ORDER BY rowid")
        for epoch, version, settings, state in rows:
            yield RecordedState(
                epoch=epoch,
                version=version,
                settings=load_settings(settings),
                state=load_state(_unpack(state, self.path)),
            )

    def last_state(self) -> RecordedState | None:
        """The newest full state, or `None` in a new ledger."""
        row = self._db.execute(
            "SELECT epoch, version, settings, state FROM states ORDER BY rowid DESC LIMIT 1"
        ).fetchone()
        if row is None:
            return None
        return RecordedState(
            epoch=row[0],
            version=row[1],
            settings=load_settings(row[2]),
            state=load_state(_unpack(row[3], self.path)),
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
        rows = self._db.execute(
            "SELECT epoch, at_s, observations, plan, state_hash FROM ticks "
            "ORDER BY epoch DESC LIMIT ?",
            (count,),
        ).fetchall()
        return tuple(self._tick(row) for row in reversed(rows))

    def tick(self, epoch: int) -> RecordedTick | None:
        """One tick, or `None` if the ledger does not hold it (any more)."""
        row = self._db.execute(
            "SELECT epoch, at_s, observations, plan, state_hash FROM ticks WHERE epoch = ?",
            (epoch,),
        ).fetchone()
        return None if row is None else self._tick(row)

    def settings_at(self, epoch: int) -> TierSettings | None:
        """The settings that a tick was planned with, or `None` in a new ledger."""
        row = self._db.execute(
            "SELECT settings FROM states WHERE epoch < ? ORDER BY rowid DESC LIMIT 1", (epoch,)
        ).fetchone()
        return None if row is None else load_settings(row[0])

    def _tick(self, row: tuple[int, float, bytes, bytes, str]) -> RecordedTick:
        epoch, at_s, observations, plan, name = row
        return RecordedTick(
            epoch=epoch,
            at_s=at_s,
            observations=load_observations(_unpack(observations, self.path)),
            plan=load_plan(_unpack(plan, self.path)),
            state_hash=name,
        )

    def trim(self, *, now_s: float, max_age_s: float, max_bytes: int) -> int:
        """Drop the oldest stretches past the bounds; returns how many ticks went.

        A stretch runs from one full state to the next; the newest one always stays.
        """
        dropped = 0
        while True:
            starts = self._db.execute(
                "SELECT rowid, epoch, at_s FROM states ORDER BY rowid LIMIT 2"
            ).fetchall()
            size = self._db.execute(
                "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            ).fetchone()[0]
            free = self._db.execute(
                "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"
            ).fetchone()[0]
            too_old = len(starts) == 2 and starts[1][2] < now_s - max_age_s
            if len(starts) < 2 or not (too_old or size - free > max_bytes):
                return dropped
            self._db.execute("BEGIN IMMEDIATE")
            gone = self._db.execute("DELETE FROM ticks WHERE epoch <= ?", (starts[1][1],))
            self._db.execute("DELETE FROM states WHERE rowid = ?", (starts[0][0],))
            self._db.execute("COMMIT")
            dropped += gone.rowcount


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    if read_only:
        where = f"{path.absolute().as_uri()}?mode=ro"
        return sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def _unpack(data: bytes, path: Path) -> bytes:
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise Misconfigured(
            "a row of the ledger is damaged",
            where=str(path),
            found=str(error),
            expected="what was written",
        ) from error
