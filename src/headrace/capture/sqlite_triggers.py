"""The SQL that notes the changes of an SQLite table in the file itself. Pure: texts from what is known of the table.

Triggers write every change, in the transaction that makes it, into a table of our own::

    _headrace.APP.NAME.changes    id (grows for ever, the order of changes), op, at (ms since 1970),
                                  old_COLUMN ..., new_COLUMN ... (values as they are stored)

Traps of SQLite that the texts avoid:

- What a row is now is read from the table, not from ``NEW``: a trigger of the user's own may have changed it again.
- ``REPLACE`` deletes rows that clash in another unique index without calling triggers. So before an insert or update,
  rows that would clash are noted as candidates (op ``x``); after it, those that are gone have been deleted. What an
  ``OR IGNORE`` leaves of them is thrown away by the next insert or update, and never read.
- JSON functions round floats and refuse blobs: values are noted in columns of their own instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["UniqueIndex", "Watched", "quoted"]

_NOW = "(CAST(strftime('%s', 'now') AS INTEGER) * 1000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER))"


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """Columns that tell rows apart, other than the key, each with the collation that it is compared by."""

    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Watched:
    """A table whose changes are noted, under a name of the app's."""

    app: str
    name: str
    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    unique: tuple[UniqueIndex, ...] = ()
    booleans: frozenset[str] = frozenset()
    """Columns whose 0 and 1 are false and true."""
    inserts_only: bool = False
    """Of an outbox only new rows count."""

    @property
    def changes(self) -> str:
        """The table that changes are noted in."""
        return f"_headrace.{self.app}.{self.name}.changes"

    def create_changes(self) -> Iterator[str]:
        """Make that table; ``add_columns`` completes one that is there."""
        columns = ", ".join(quoted(name) for name in self._noted)
        yield (
            f"CREATE TABLE IF NOT EXISTS {quoted(self.changes)} "
            f"(id INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, at INTEGER, {columns})"
        )
        yield (
            f"CREATE INDEX IF NOT EXISTS {quoted(self.changes + '.candidates')} ON {quoted(self.changes)} (op) "
            "WHERE op = 'x'"
        )

    def add_columns(self, present: Iterable[str]) -> Iterator[str]:
        """Columns that the table of changes lacks."""
        there = {name.lower() for name in present}
        for name in self._noted:
            if name.lower() not in there:
                yield f"ALTER TABLE {quoted(self.changes)} ADD COLUMN {quoted(name)}"

    @property
    def triggers(self) -> dict[str, str]:
        """The triggers by name."""
        found = {"insert": self._insert()}
        if not self.inserts_only:
            found |= {"update": self._update(), "delete": self._delete()}
            if self.unique:
                found |= {"before_insert": self._candidates("INSERT"), "before_update": self._candidates("UPDATE")}
        named = {f"_headrace.{self.app}.{self.name}.{moment}": sql for moment, sql in found.items()}
        return {name: f"CREATE TRIGGER {quoted(name)} {sql}" for name, sql in named.items()}

    def drop(self) -> Iterator[str]:
        """Leave nothing of it."""
        for moment in ("insert", "update", "delete", "before_insert", "before_update"):
            yield f"DROP TRIGGER IF EXISTS {quoted(f'_headrace.{self.app}.{self.name}.{moment}')}"
        yield f"DROP TABLE IF EXISTS {quoted(self.changes)}"

    def copy_rows(self, after: str | None, limit: int) -> str:
        """Note the next rows of the table, in the order of the key, as read (op ``r``); ``after`` is the last key, as
        SQL literals."""
        key = ", ".join(quoted(name) for name in self.key)
        where = "" if after is None else f" WHERE ({key}) > ({after})"
        read = ", ".join(quoted(name) for name in self.columns)
        return (
            f"INSERT INTO {self._into('new_')} SELECT 'r', {_NOW}, {read} FROM {quoted(self.table)}{where} "
            f"ORDER BY {key} LIMIT {limit}"
        )

    def last_key(self, after: str | None, limit: int) -> str:
        """The key, as SQL literals, that ``copy_rows`` comes to."""
        key = ", ".join(quoted(name) for name in self.key)
        where = "" if after is None else f" WHERE ({key}) > ({after})"
        literals = " || ',' || ".join(f"quote({quoted(name)})" for name in self.key)
        chunk = f"SELECT {key} FROM {quoted(self.table)}{where} ORDER BY {key} LIMIT {limit}"
        backwards = ", ".join(f"{quoted(name)} DESC" for name in self.key)
        return f"SELECT {literals} FROM ({chunk}) ORDER BY {backwards} LIMIT 1"

    def note_deletion(self) -> str:
        """Note that the row with this key (its parameters) is gone."""
        names = ", ".join(quoted(f"old_{name}") for name in self.key)
        values = ", ".join("?" * len(self.key))
        return f"INSERT INTO {quoted(self.changes)} (op, at, {names}) VALUES ('d', {_NOW}, {values})"

    def read_changes(self) -> str:
        """Changes after an id (first parameter), at most so many (second)."""
        noted = ", ".join(quoted(name) for name in self._noted)
        return f"SELECT id, op, at, {noted} FROM {quoted(self.changes)} WHERE id > ? ORDER BY id LIMIT ?"

    @property
    def _noted(self) -> list[str]:
        return [f"{side}_{name}" for side in ("old", "new") for name in self.columns]

    def _into(self, *sides: str) -> str:
        columns = ", ".join(quoted(side + name) for side in sides for name in self.columns)
        return f"{quoted(self.changes)} (op, at, {columns})"

    def _now_there(self, key_of: str) -> str:
        """The row of the table that a key names."""
        return " AND ".join(f"t.{quoted(name)} IS {key_of}.{quoted(name)}" for name in self.key)

    def _each(self, row: str) -> str:
        return ", ".join(f"{row}.{quoted(name)}" for name in self.columns)

    def _insert(self) -> str:
        table = quoted(self.table)
        return (
            f"AFTER INSERT ON {table} BEGIN {self._confirm()}"
            f"INSERT INTO {self._into('new_')} SELECT 'c', {_NOW}, {self._each('t')} "
            f"FROM {table} AS t WHERE {self._now_there('NEW')}; END"
        )

    def _update(self) -> str:
        table = quoted(self.table)
        moved = " OR ".join(f"OLD.{quoted(name)} IS NOT NEW.{quoted(name)}" for name in self.key)
        return (
            f"AFTER UPDATE ON {table} BEGIN {self._confirm()}"
            f"INSERT INTO {self._into('old_', 'new_')} SELECT 'u', {_NOW}, {self._each('OLD')}, {self._each('t')} "
            f"FROM {table} AS t WHERE {self._now_there('NEW')}; "
            f"INSERT INTO {self._into('old_')} SELECT 'd', {_NOW}, {self._each('OLD')} "
            f"WHERE ({moved}) AND NOT EXISTS (SELECT 1 FROM {table} AS t WHERE {self._now_there('NEW')}); END"
        )

    def _delete(self) -> str:
        return (
            f"AFTER DELETE ON {quoted(self.table)} BEGIN "
            f"INSERT INTO {self._into('old_')} VALUES ('d', {_NOW}, {self._each('OLD')}); END"
        )

    def _candidates(self, verb: str) -> str:
        """Rows that the new one clashes with, if it is put in their place."""
        clashes = " OR ".join(
            "(" + " AND ".join(f"t.{quoted(c)} = NEW.{quoted(c)} COLLATE {coll}" for c, coll in index.columns) + ")"
            for index in self.unique
        )
        changes, table = quoted(self.changes), quoted(self.table)
        others = f" AND NOT ({self._now_there('OLD')})" if verb == "UPDATE" else ""
        return (
            f"BEFORE {verb} ON {table} BEGIN DELETE FROM {changes} WHERE op = 'x'; "
            f"INSERT INTO {self._into('old_')} SELECT 'x', {_NOW}, {self._each('t')} FROM {table} AS t "
            f"WHERE ({clashes}){others}; END"
        )

    def _confirm(self) -> str:
        """Candidates that are gone were deleted, unless that was noted already (``PRAGMA recursive_triggers``)."""
        if not self.unique:
            return ""
        changes = quoted(self.changes)
        same = " AND ".join(f"t.{quoted(n)} IS {changes}.{quoted(f'old_{n}')}" for n in self.key)
        told = " AND ".join(f"c.{quoted(f'old_{n}')} IS {changes}.{quoted(f'old_{n}')}" for n in self.key)
        return (
            f"UPDATE {changes} SET op = 'd' WHERE op = 'x' "
            f"AND NOT EXISTS (SELECT 1 FROM {quoted(self.table)} AS t WHERE {same}) "
            f"AND NOT EXISTS (SELECT 1 FROM {changes} AS c WHERE c.id > {changes}.id AND c.op = 'd' AND {told}); "
            f"DELETE FROM {changes} WHERE op = 'x'; "
        )
