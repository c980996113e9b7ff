"""An SQLite file as capture sees it: what its tables are, and the triggers that note their changes.

Beside the tables of changes (``sqlite_triggers``) a file that is captured has a table of our own::

    _headrace_capture    name (APP/NAME), file (a random id of this file), snapshot (wanted; running; again: running,
                         and then what only the topic has is deleted; done; never), reached (the last key that was
                         copied, as SQL literals), forgotten (up to which id changes were deleted, being in the log)

Everything here is done in transactions of the file, so a kill at any moment leaves it whole.
"""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.capture.columns import TableColumn, TableLook, spark_type
from headrace.capture.declarations import Captured, Snapshot, SQLite
from headrace.capture.problems import Unreachable
from headrace.capture.sqlite_triggers import UniqueIndex, Watched, quoted
from headrace.errors import HeadraceError

__all__ = ["Installed", "SQLiteFile", "look"]

_STATE = "_headrace_capture"
_MOST_COLUMNS = 900
CHUNK_ROWS = 2_000
BUSY_S = 30.0
COMMIT_S = 1.0
"""How long a commit waits for readers, while others cannot begin to read: without a WAL that is how SQLite does it."""
_FORGET_S = 0.05
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@dataclass(frozen=True, slots=True)
class Installed:
    """What is noted of a table in its file."""

    watched: Watched
    file: str
    """A random id of the file: a copy that was made before is told apart by the ids of its changes, another file by
    this."""
    snapshot: str
    forgotten: int = 0
    renewed: bool = False
    """Whether triggers or changes that had been there were gone: what was changed meanwhile is not known, so all is
    read anew."""

    @property
    def is_copying(self) -> bool:
        """Whether a snapshot is under way."""
        return self.snapshot in ("running", "again")


def look(source: SQLite) -> TableLook:
    """The columns and the key of a table; an error if there is none."""
    with contextlib.closing(SQLiteFile(source)) as file:
        return file.look()


class SQLiteFile:
    """A connection to the file of a captured table. For one thread."""

    def __init__(self, source: SQLite) -> None:
        self.source = source
        path = Path(source.path)
        if not path.is_file():
            raise HeadraceError(
                f"there is no SQLite file {str(path)!r}.",
                hint="write the path as the program sees it that runs the app, and make the table first",
            )
        with self._explained():
            self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        self._connection.text_factory = lambda text: text.decode(errors="replace")

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def look(self) -> TableLook:
        """The columns and the key of the table."""
        found = self._all(f"PRAGMA table_xinfo({quoted(self.source.table)})")
        kind = self._one("SELECT type FROM sqlite_master WHERE lower(name) = lower(?)", self.source.table)
        if not found or kind != "table":
            raise HeadraceError(
                f"there is no table {self.source.table!r} in {str(self.source.path)!r}.",
                hint=f"it has: {', '.join(self._tables()) or 'no tables'}",
            )
        columns = tuple(TableColumn(row[1], row[2] or "", not row[3]) for row in found if row[6] != 1)
        return TableLook(columns, tuple(row[1] for row in sorted(found, key=lambda row: row[5]) if row[5]))

    def install(self, app: str, captured: Captured) -> Installed:
        """Make the triggers and our tables, or put them right; one transaction."""
        watched = self.watched(app, captured)
        with self._explained(), self._transaction():
            self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {_STATE} "
                "(name TEXT PRIMARY KEY, file TEXT, snapshot TEXT, reached TEXT, forgotten INTEGER)"
            )
            had_changes = self._one("SELECT 1 FROM sqlite_master WHERE name = ?", watched.changes) is not None
            for statement in watched.create_changes():
                self._connection.execute(statement)
            present = [row[1] for row in self._all(f"PRAGMA table_info({quoted(watched.changes)})")]
            for statement in watched.add_columns(present):
                self._connection.execute(statement)
            there = self._triggers(watched)
            for name, sql in watched.triggers.items():
                if there.get(name) != sql:
                    self._connection.execute(f"DROP TRIGGER IF EXISTS {quoted(name)}")
                    self._connection.execute(sql)
            return self._noted(watched, bool(there) and had_changes)

    def watched(self, app: str, captured: Captured) -> Watched:
        """What is to be noted of the table; an error if that is not possible."""
        seen, outbox = self.look(), captured.outbox
        names = tuple(column.name for column in seen.columns)
        key = (outbox.id,) if outbox is not None else self._key(captured, seen)
        for name in outbox.columns if outbox is not None else key:
            if name not in names:
                raise HeadraceError(
                    f"table {self.source.table!r} has no column {name!r}.", hint=f"its columns are: {', '.join(names)}"
                )
        if len(names) > _MOST_COLUMNS:
            raise HeadraceError(f"table {self.source.table!r} has more than {_MOST_COLUMNS} columns.")
        unique = () if outbox is not None else tuple(self._unique(seen))
        booleans = frozenset(one.name for one in seen.columns if spark_type("sqlite", one.native) == "boolean")
        return Watched(app, captured.name, self.source.table, names, key, unique, booleans, outbox is not None)

    def remove(self, app: str, name: str) -> None:
        """Take away everything of ours."""
        with self._explained(), self._transaction():
            for statement in Watched(app, name, self.source.table, (), ()).drop():
                self._connection.execute(statement)
            if self._one("SELECT 1 FROM sqlite_master WHERE name = ?", _STATE):
                self._connection.execute(f"DELETE FROM {_STATE} WHERE name = ?", (f"{app}/{name}",))
                if not self._one(f"SELECT count(*) FROM {_STATE}"):
                    self._connection.execute(f"DROP TABLE {_STATE}")

    def ask_for_snapshot(self, installed: Installed, *, again: bool) -> Installed:
        """Begin to copy the rows of the table into its changes, from the first; ``again`` if the topic may have rows
        that the table has no more."""
        with self._explained(), self._transaction():
            return self._state(installed, "again" if again else "running", None)

    def copy_chunk(self, installed: Installed, rows: int | None = None) -> Installed | None:
        """Copy the next rows of a snapshot; None if there are no more. One short transaction, so writers hardly wait,
        and what they write meanwhile comes after what is copied here."""
        watched, rows = installed.watched, rows or CHUNK_ROWS
        with self._explained(), self._transaction():
            reached = self._one(f"SELECT reached FROM {_STATE} WHERE name = ?", _name(watched))
            last = self._one(watched.last_key(reached, rows))
            if last is None:
                return None
            self._connection.execute(watched.copy_rows(reached, rows))
            return self._state(installed, installed.snapshot, last)

    def end_snapshot(
        self, installed: Installed, keys: Iterable[tuple[Any, ...]], carried: int
    ) -> tuple[Installed, int]:
        """All rows were copied. Those of these keys that have no row are noted as deleted, unless a change that waits
        (after the id ``carried``) says so; how many those are."""
        watched = installed.watched
        there = f"SELECT 1 FROM {quoted(watched.table)} WHERE " + " AND ".join(f"{quoted(n)} IS ?" for n in watched.key)
        waits = (
            f"SELECT 1 FROM {quoted(watched.changes)} WHERE id > {carried} AND op IN ('u', 'd') AND "
            + " AND ".join(f"{quoted(f'old_{name}')} IS ?" for name in watched.key)
        )
        gone = 0
        missing = [key for key in keys if not self._one(there, *key)]  # very many keys, and writers need not wait
        with self._explained(), self._transaction():
            for key in missing:
                if not self._one(there, *key) and not self._one(waits, *key):
                    self._connection.execute(watched.note_deletion(), key)
                    gone += 1
            return self._state(installed, "done", None), gone

    def changes(self, watched: Watched, after: int, limit: int) -> list[tuple[Any, ...]]:
        """The next changes in order: id, op, at, old values, new values."""
        return self._all(watched.read_changes(), after, limit)

    def forget_changes(self, watched: Watched, up_to: int) -> bool:
        """Delete changes that are in the log; False if somebody else reads or writes just now."""
        try:
            with self._explained(), self._transaction(_FORGET_S):
                self._connection.execute(f"DELETE FROM {quoted(watched.changes)} WHERE id <= ?", (up_to,))
                self._connection.execute(f"UPDATE {_STATE} SET forgotten = ? WHERE name = ?", (up_to, _name(watched)))
            return True
        except Unreachable:
            return False

    def last_id(self, watched: Watched) -> int:
        """The largest id that a change has had."""
        return int(self._one("SELECT seq FROM sqlite_sequence WHERE name = ?", watched.changes) or 0)

    def pending(self, watched: Watched, after: int) -> tuple[int, int | None]:
        """How many changes wait, and of when the oldest is (milliseconds)."""
        waiting = f"FROM {quoted(watched.changes)} WHERE id > ?"
        oldest = self._one(f"SELECT at {waiting} ORDER BY id LIMIT 1", after)
        return int(self._one(f"SELECT count(*) {waiting}", after)), oldest

    @property
    def version(self) -> tuple[int, int]:
        """Differs when somebody else has written to the file, or has changed its schema."""
        return int(self._one("PRAGMA data_version")), int(self._one("PRAGMA schema_version"))

    def _noted(self, watched: Watched, was_whole: bool) -> Installed:
        known = self._connection.execute(
            f"SELECT file, snapshot, forgotten FROM {_STATE} WHERE name = ?", (_name(watched),)
        ).fetchone()
        if known is None:
            snapshot = "never" if self.source.snapshot == Snapshot.NEVER else "wanted"
            file = uuid.uuid4().hex
            self._connection.execute(
                f"INSERT INTO {_STATE} VALUES (?, ?, ?, NULL, 0)", (_name(watched), file, snapshot)
            )
            return Installed(watched, file, snapshot)
        found = Installed(watched, known[0], known[1], known[2], renewed=not was_whole)
        return found if was_whole else self._state(found, "again", None)

    def _state(self, installed: Installed, snapshot: str, reached: str | None) -> Installed:
        self._connection.execute(
            f"UPDATE {_STATE} SET snapshot = ?, reached = ? WHERE name = ?",
            (snapshot, reached, _name(installed.watched)),
        )
        return replace(installed, snapshot=snapshot)

    def _key(self, captured: Captured, seen: TableLook) -> tuple[str, ...]:
        key = captured.key or seen.key
        if not key:
            raise HeadraceError(
                f"table {self.source.table!r} has no primary key.",
                detail="Without one nobody can tell which row a change is of.",
                hint="make the table with one (CREATE TABLE ... PRIMARY KEY), or say key= with columns that are unique",
            )
        if seen.key and set(key) != set(seen.key):
            raise HeadraceError(
                f"table {self.source.table!r} is declared with the key {', '.join(key)}, but its primary key is "
                f"{', '.join(seen.key)}.",
                hint=f"say key={list(seen.key)}",
            )
        for name in key:
            known = any(column.name == name for column in seen.columns)
            if known and self._one(f"SELECT 1 FROM {quoted(self.source.table)} WHERE {quoted(name)} IS NULL LIMIT 1"):
                table = quoted(self.source.table)
                raise HeadraceError(
                    f"table {self.source.table!r} has rows whose key, {name!r}, is null.",
                    hint=f"give them one, or delete them: DELETE FROM {table} WHERE {quoted(name)} IS NULL",
                )
        return key

    def _unique(self, seen: TableLook) -> Iterator[UniqueIndex]:
        """Unique indexes other than the key's."""
        listed = self._all(f"PRAGMA index_list({quoted(self.source.table)})")
        for _, index, is_unique, origin, _ in (row[:5] for row in listed):
            if not is_unique or origin == "pk":
                continue
            columns = [row for row in self._all(f"PRAGMA index_xinfo({quoted(index)})") if row[5]]
            plain = tuple((row[2], row[4]) for row in columns if row[2] is not None)
            if not plain:
                raise HeadraceError(
                    f"table {self.source.table!r} has a unique index over expressions only, {index!r}.",
                    detail="INSERT OR REPLACE could delete rows by it, and SQLite tells no trigger of that.",
                    hint=f"drop it: DROP INDEX {quoted(index)}; or make it over a column",
                )
            if {name for name, _ in plain} != set(seen.key):
                yield UniqueIndex(plain)

    def _tables(self) -> list[str]:
        listed = self._all("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        return [name for (name,) in listed if not name.startswith(("sqlite_", "_headrace"))]

    def _triggers(self, watched: Watched) -> dict[str, str]:
        found = self._all(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(?)", watched.table
        )
        mine = f"_headrace.{watched.app}.{watched.name}."
        return {name: sql for name, sql in found if name.startswith(mine)}

    def _all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._explained():
            return self._connection.execute(sql, values).fetchall()

    def _one(self, sql: str, *values: Any) -> Any:
        with self._explained():
            row = self._connection.execute(sql, values).fetchone()
        return None if row is None else row[0]

    @contextlib.contextmanager
    def _transaction(self, patience_s: float | None = None) -> Iterator[None]:
        """A transaction that is undone when anything fails, its commit too: left open, it would lock everybody out."""
        patience_s = patience_s or BUSY_S
        self._wait_for_others(patience_s)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._wait_for_others(min(patience_s, COMMIT_S))
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        finally:
            self._wait_for_others(BUSY_S)

    def _wait_for_others(self, seconds: float) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            sentence = f"SQLite file {str(self.source.path)!r}"
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _LOCKED:
                raise Unreachable(
                    f"{sentence} is locked by another program ({error}).",
                    hint="one that reads or writes for long; `PRAGMA journal_mode=WAL` lets readers and a writer work "
                    "side by side",
                ) from error
            raise HeadraceError(
                f"{sentence}: {error}.",
                hint="it must be an SQLite database that this process may write to (the changes are noted in it)",
            ) from error


def _name(watched: Watched) -> str:
    return f"{watched.app}/{watched.name}"
