"""Changes written to the table of a build: all of them, or none and why.

Many rows are copied into a temporary table and taken from there by one statement; few are put one by one, in one
round trip. Both give PostgreSQL the same text of a value, so what fits does not depend on how many came at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.adapt import Dumper

from headrace.views.applying import Refused
from headrace.views.catalog import ViewSpec
from headrace.views.changes import Changes, Row
from headrace.views.columns import Column, Kind
from headrace.views.postgres.address import Connection, execute
from headrace.views.postgres.types import given
from headrace.views.statement import quoted

__all__ = ["COPY_FROM", "BuildWriter"]

COPY_FROM = 100
"""So many rows are many."""

_STAGE, _GONE = "pg_temp.headrace_stage", "pg_temp.headrace_gone"
_TOO_MUCH = ("21000", "54000", "54001")
"""A key twice in one part; a value that is too large for an index or too deep: no row, and no trouble of the server."""


class BuildWriter:
    """Writes to one table. ``copy_from``: how many rows are worth a copy."""

    def __init__(self, spec: ViewSpec, table: str, copy_from: int = COPY_FROM) -> None:
        self._table = table
        self._copy_from = copy_from
        self._columns, self._keys = spec.columns, spec.key_columns
        self._names = ", ".join(quoted(column.name) for column in spec.columns)
        self._key_names = ", ".join(quoted(column.name) for column in spec.key_columns)
        changed = [column for column in spec.columns if column not in spec.key_columns]
        sets = ", ".join(f"{quoted(column.name)} = excluded.{quoted(column.name)}" for column in changed)
        self._conflict = f"ON CONFLICT ({self._key_names}) DO " + (f"UPDATE SET {sets}" if sets else "NOTHING")

    def write(self, db: Connection, changes: Changes) -> None:
        """Write, in the transaction that is open; Refused if any value does not fit."""
        try:
            with db.transaction():
                self._delete(db, changes.gone)
                self._put(db, changes.rows)
        except (psycopg.Error, ValueError) as error:
            if not _is_refusal(error):
                raise
            raise Refused(_why(error)) from None

    def _put(self, db: Connection, rows: list[Row]) -> None:
        values = _given(self._columns, rows)
        if len(rows) >= self._copy_from:
            self._copy(db, _STAGE, self._names, values)
            execute(
                db,
                f"INSERT INTO {self._table} ({self._names}) SELECT {self._names} FROM {_STAGE} {self._conflict}",
            )
            execute(db, f"DROP TABLE {_STAGE}")
        elif rows:
            marks = ", ".join(f"${number}" for number in range(1, len(self._columns) + 1))
            self._many(db, f"INSERT INTO {self._table} ({self._names}) VALUES ({marks}) {self._conflict}", values)

    def _delete(self, db: Connection, gone: list[Row]) -> None:
        """Delete rows by their keys. No operator of PostgreSQL finds nulls by an index as it finds values, so keys are
        taken by which of their columns are null: most often none is."""
        groups: dict[tuple[bool, ...], list[Row]] = {}
        for key in gone:
            groups.setdefault(tuple(value is None for value in key), []).append(key)
        for nulls, keys in groups.items():
            self._delete_alike(db, nulls, keys)

    def _delete_alike(self, db: Connection, nulls: tuple[bool, ...], keys: list[Row]) -> None:
        empty = [f"t.{quoted(column.name)} IS NULL" for column, null in zip(self._keys, nulls, strict=True) if null]
        columns = [column for column, null in zip(self._keys, nulls, strict=True) if not null]
        values = _given(columns, [[value for value in key if value is not None] for key in keys])
        if len(keys) >= self._copy_from and columns:
            names = ", ".join(quoted(column.name) for column in columns)
            self._copy(db, _GONE, names, values)
            same = [f"t.{quoted(column.name)} = g.{quoted(column.name)}" for column in columns]
            execute(db, f"DELETE FROM {self._table} t USING {_GONE} g WHERE {' AND '.join([*same, *empty])}")
            execute(db, f"DROP TABLE {_GONE}")
        else:
            same = [f"t.{quoted(column.name)} = ${number}" for number, column in enumerate(columns, 1)]
            self._many(db, f"DELETE FROM {self._table} t WHERE {' AND '.join([*same, *empty])}", values)

    def _copy(self, db: Connection, stage: str, names: str, values: Sequence[Sequence[Any]]) -> None:
        execute(db, f"CREATE TEMPORARY TABLE {stage} ON COMMIT DROP AS SELECT {names} FROM {self._table} WITH NO DATA")
        with _cursor(db) as cursor, cursor.copy(f"COPY {stage} ({names}) FROM STDIN".encode()) as copy:
            for row in values:
                copy.write_row(row)

    def _many(self, db: Connection, statement: str, values: Sequence[Sequence[Any]]) -> None:
        with _cursor(db, int, float, bool) as cursor:
            cursor.executemany(statement.encode(), values)


class _AsText(Dumper):
    """A value whose type is that of its column, as in a copy."""

    oid = 0

    def dump(self, obj: Any) -> bytes:
        return str(obj).encode()


class _NoValue(Dumper):
    """A list or an object where a plain value is to be."""

    oid = 0

    def dump(self, obj: Any) -> bytes:
        raise psycopg.DataError(f"{type(obj).__name__} is no plain value")


def _cursor(db: Connection, *as_text: type) -> psycopg.Cursor[Any]:
    cursor = db.cursor()
    for kind in as_text:
        cursor.adapters.register_dumper(kind, _AsText)
    for kind in (list, dict):
        cursor.adapters.register_dumper(kind, _NoValue)
    return cursor


def _given(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
    """Rows as PostgreSQL reads them: but for binary they are so already."""
    if not any(column.kind is Kind.binary for column in columns):
        return rows
    return [[given(column, value) for column, value in zip(columns, row, strict=True)] for row in rows]


def _is_refusal(error: Exception) -> bool:
    if not isinstance(error, psycopg.Error):
        return True
    cannot_adapt = isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None
    return isinstance(error, psycopg.DataError) or error.sqlstate in _TOO_MUCH or cannot_adapt


def _why(error: Exception) -> str:
    said = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return said or str(error)
