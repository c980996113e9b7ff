"""The store of an app's views in one SQLite file, in WAL mode: readers never wait for the writer, nor it for them.

The file ``<app>.sqlite``::

    headrace_builds    number, view, spec (JSON), topic_id, live, bad, last_bad
    headrace_offsets   build, partition, following
    "<view>~<number>"  the rows of a build: typed columns (STRICT), unique over the key columns, where null equals null
    "<view>"           an SQL view of the live build

``PRAGMA user_version`` is the format. A file of another format, or one that SQLite cannot read, is removed and
rebuilt from the topics: a store is never the truth. Commits are not synced one by one (``synchronous=NORMAL``): a
power loss takes back whole transactions, rows and offsets together, and they are read again from the log.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import StoreAway
from headrace.views.applying import Refused, take_in
from headrace.views.catalog import ViewSpec
from headrace.views.changes import Changes, RowDecoder
from headrace.views.columns import Column, Kind, compact_json
from headrace.views.statement import quoted
from headrace.views.store import Applied, Build

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SUFFIX", "SqliteStore", "key_expression"]

FORMAT = 2
CACHE_KIB = 32 << 10
SUFFIX = ".sqlite"

_logger = logging.getLogger(__name__)

_TYPES = {Kind.integer: "INTEGER", Kind.boolean: "INTEGER", Kind.real: "REAL"}
_REFUSALS = (
    *(sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.DataError),
    *(OverflowError, UnicodeEncodeError),
)
"""How SQLite refuses a value."""

_TABLES = """
CREATE TABLE IF NOT EXISTS headrace_builds (
    number INTEGER PRIMARY KEY, view TEXT NOT NULL, spec TEXT NOT NULL, topic_id TEXT NOT NULL, live INTEGER NOT NULL,
    bad INTEGER NOT NULL DEFAULT 0, last_bad TEXT) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS headrace_live ON headrace_builds (view) WHERE live;
CREATE TABLE IF NOT EXISTS headrace_offsets (
    build INTEGER NOT NULL, partition INTEGER NOT NULL, following INTEGER NOT NULL,
    PRIMARY KEY (build, partition)) STRICT, WITHOUT ROWID;
"""


class SqliteStore:
    """The views of one app in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with _away_told():
            self._db = _usable(path)
        self._inode = path.stat().st_ino
        self._decoders: dict[int, RowDecoder] = {}

    def lost(self) -> bool:
        """Whether somebody has removed or replaced the file under us."""
        try:
            return self.path.stat().st_ino != self._inode
        except FileNotFoundError:
            return True

    def builds(self) -> list[Build]:
        """What is in the store, oldest first."""
        found = {}
        with _away_told():
            for number, spec, topic_id, live, bad, last in self._db.execute(
                "SELECT number, spec, topic_id, live, bad, last_bad FROM headrace_builds ORDER BY number"
            ):
                said = ViewSpec.from_json(json.loads(spec))
                found[number] = Build(number, said, topic_id, bool(live), bad=bad, last_bad=last)
            for number, partition, following in self._db.execute("SELECT * FROM headrace_offsets"):
                found[number].offsets[partition] = following
        return list(found.values())

    def take(self, view: str) -> list[Build]:
        """The builds of a view. The node that holds the data folder is the only one that writes here."""
        return [build for build in self.builds() if build.spec.name == view]

    def let_go(self, view: str) -> None:
        """Nobody else has the file."""

    def begin(self, spec: ViewSpec, topic_id: str) -> Build:
        """A new, empty build from the topic of this id; live at once if the view has none yet."""
        with self._transaction() as db:
            live = not db.execute("SELECT 1 FROM headrace_builds WHERE view = ? AND live", (spec.name,)).fetchall()
            added = db.execute(
                "INSERT INTO headrace_builds (view, spec, topic_id, live) VALUES (?, ?, ?, ?)",
                (spec.name, compact_json(spec.to_json()), topic_id, live),
            )
            build = Build(added.lastrowid or 0, spec, topic_id, live)
            columns = ", ".join(f"{quoted(column.name)} {_TYPES.get(column.kind, 'TEXT')}" for column in spec.columns)
            db.execute(f"CREATE TABLE {_table(build)} ({columns}) STRICT")
            key = ", ".join(key_expression(column) for column in spec.key_columns)
            db.execute(f"CREATE UNIQUE INDEX {quoted(f'{spec.name}~{build.number}~key')} ON {_table(build)} ({key})")
            if live:
                _point_at(db, build)
        return build

    def apply(self, build: Build, partition: int, records: pa.RecordBatch | None, following: int) -> Applied:
        """Take in records up to the offset ``following``, in one transaction."""
        with self._transaction() as db:
            applied = Applied(0, 0) if records is None else self._applied(build, records)
            offset = (build.number, partition, following)
            db.execute("INSERT OR REPLACE INTO headrace_offsets VALUES (?, ?, ?)", offset)
            if applied.bad:
                db.execute(
                    "UPDATE headrace_builds SET bad = bad + ?, last_bad = ? WHERE number = ?",
                    (len(applied.bad), applied.last_bad(partition), build.number),
                )
        build.advance(partition, following, applied)
        return applied

    def swap(self, build: Build) -> None:
        """Make this build the live one, and drop the one that was."""
        with self._transaction() as db:
            for (number,) in db.execute(
                "SELECT number FROM headrace_builds WHERE view = ? AND live AND number != ?",
                (build.spec.name, build.number),
            ).fetchall():
                _forget(db, build.spec.name, number)
            db.execute("UPDATE headrace_builds SET live = 1 WHERE number = ?", (build.number,))
            _point_at(db, build)
        build.live = True

    def drop(self, build: Build) -> None:
        """Remove a build and its rows."""
        with self._transaction() as db:
            if build.live:
                db.execute(f"DROP VIEW IF EXISTS {quoted(build.spec.name)}")
            _forget(db, build.spec.name, build.number)
        self._decoders.pop(build.number, None)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _away_told():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _applied(self, build: Build, records: pa.RecordBatch) -> Applied:
        decoder = self._decoders.setdefault(build.number, RowDecoder(build.spec))
        put, delete = _statements(build)

        def write(changes: Changes) -> None:
            self._db.execute("SAVEPOINT some")
            try:
                self._db.executemany(delete, changes.gone)
                self._db.executemany(put, changes.rows)
            except _REFUSALS as error:
                self._db.execute("ROLLBACK TO some")
                self._db.execute("RELEASE some")
                raise Refused(str(error)) from error
            self._db.execute("RELEASE some")

        return take_in(decoder, records, write)


def key_expression(column: Column) -> str:
    """A key column where null equals null: no value is an empty blob."""
    return f"ifnull({quoted(column.name)}, x'')"


@contextmanager
def _away_told() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreAway(str(error)) from error


def _usable(path: Path) -> sqlite3.Connection:
    """The file, opened; one that is no store of ours is thrown away first."""
    try:
        return _opened(path)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        _logger.warning("%s cannot be used (%s): it is thrown away and rebuilt from the log", path.name, error)
        _remove(path)
        return _opened(path)


def _opened(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        [found] = db.execute("PRAGMA user_version").fetchone()
        empty = not db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        if found != FORMAT and not empty:
            raise sqlite3.DatabaseError(f"its format is {found}, not {FORMAT}")
        db.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {FORMAT}; COMMIT;")
    except BaseException:
        db.close()
        raise
    return db


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _table(build: Build) -> str:
    return quoted(f"{build.spec.name}~{build.number}")


def _statements(build: Build) -> tuple[str, str]:
    """The statements that put a row and delete one by its key."""
    marks = ", ".join("?" * len(build.spec.columns))
    same = " AND ".join(f"{key_expression(column)} = ifnull(?, x'')" for column in build.spec.key_columns)
    return f"INSERT OR REPLACE INTO {_table(build)} VALUES ({marks})", f"DELETE FROM {_table(build)} WHERE {same}"


def _point_at(db: sqlite3.Connection, build: Build) -> None:
    name = quoted(build.spec.name)
    db.execute(f"DROP VIEW IF EXISTS {name}")
    db.execute(f"CREATE VIEW {name} AS SELECT * FROM {_table(build)}")


def _forget(db: sqlite3.Connection, view: str, number: int) -> None:
    db.execute("DELETE FROM headrace_builds WHERE number = ?", (number,))
    db.execute("DELETE FROM headrace_offsets WHERE build = ?", (number,))
    db.execute(f"DROP TABLE IF EXISTS {quoted(f'{view}~{number}')}")
