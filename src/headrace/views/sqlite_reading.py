"""Answers from the SQLite files of views, each from one snapshot that says which changelog offsets it reflects.

Every answer has a connection of its own, opened read-only, so nothing that is asked can change or hold up a store.
Strangers' SQL sees the views and nothing else (an authorizer decides), and is bounded in time, rows and bytes. All
apps are attached under their names: ``SELECT * FROM shop.revenue``, or ``revenue`` where only one app has it.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from headrace.errors import InvalidQuery, UnknownView
from headrace.views.catalog import ViewName, ViewSpec
from headrace.views.columns import Column, Kind
from headrace.views.question import Condition, Question
from headrace.views.sqlite import SUFFIX, SqliteStore, key_expression
from headrace.views.statement import Bind, quoted, select, shown_rows, taken
from headrace.views.store import ANSWER_S, Answer, Offsets, SqlLimits, took_too_long

__all__ = ["SqliteReader", "SqliteStores"]

MAX_APPS = 10
"""SQLite attaches this many files."""
_STEPS_BETWEEN_LOOKS = 10_000
_FUNCTIONS_REFUSED = {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit", "sqlite_offset"}
_TABLES_ALLOWED = {"json_each", "json_tree", "generate_series"}
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_LOOSE_TYPES = {int: "bigint", float: "double", str: "string", bytes: "binary"}


class SqliteStores:
    """A folder with a file for each app."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def shared_as(self) -> str | None:
        """The files are ours alone."""
        return None

    def open(self, app: str, log: str | None = None) -> SqliteStore:
        """The file of an app: whatever log the node of this folder serves."""
        return SqliteStore(self._folder / f"{app}{SUFFIX}")

    def reader(self, apps: Callable[[], Sequence[str]]) -> SqliteReader:
        """A reader of all files."""
        return SqliteReader(self._folder, apps)

    def close(self) -> None:
        """There is nothing to let go of."""


class SqliteReader:
    """Reads the files of a folder, ``<app>.sqlite`` each."""

    def __init__(self, folder: Path, apps: Callable[[], Sequence[str]], seconds: float = ANSWER_S) -> None:
        """``apps`` says which apps there are now; ``seconds``: how long an answer from one view may take."""
        self._folder = folder
        self._apps = apps
        self._seconds = seconds

    def select(self, view: ViewName, question: Question) -> Answer:
        """Rows of one view."""
        with self._snapshot(view) as (db, spec, offsets):
            columns = question.columns or spec.columns
            statement, parameters = select(quoted(spec.name), columns, question, _Sqlite(spec, question))
            try:
                rows, more = taken(db.execute(statement, parameters), question)
            except (OverflowError, UnicodeEncodeError) as error:
                raise InvalidQuery(f"the question cannot be answered: {error}") from error
            return Answer(columns, shown_rows(columns, rows), {spec.full_name: offsets}, more)

    def count(self, view: ViewName) -> int:
        """How many rows a view has."""
        with self._snapshot(view) as (db, spec, _):
            [number] = db.execute(f"SELECT count(*) FROM {quoted(spec.name)}").fetchone()
            return int(number)

    @contextmanager
    def _snapshot(self, view: ViewName) -> Iterator[tuple[sqlite3.Connection, ViewSpec, Offsets]]:
        app, name = view
        with closing(self._opened(app)) as db:
            db.execute("BEGIN")
            for number, spec in db.execute("SELECT number, spec FROM headrace_builds WHERE view = ? AND live", (name,)):
                with _bounded(db, self._seconds):
                    yield db, _spec(spec), _offsets(db, "main", number)
                return
        raise UnknownView(f"view {app}.{name} is not in its store yet")

    def _opened(self, app: str) -> sqlite3.Connection:
        path = self._folder / f"{app}{SUFFIX}"
        try:
            return sqlite3.connect(_read_only(path), uri=True, isolation_level=None, timeout=10)
        except sqlite3.OperationalError as error:
            raise UnknownView(f"the views of app {app!r} are not in their store yet") from error

    def sql(self, statement: str, parameters: Sequence[Any], limits: SqlLimits) -> Answer:
        """A read-only statement over all views."""
        with closing(sqlite3.connect("file::memory:", uri=True, isolation_level=None, timeout=10)) as db:
            attached = self._attach(db)
            db.execute("BEGIN")
            versions: dict[str, Offsets] = {}
            tables: set[str] = set()
            for app in attached:
                for number, text in db.execute(f"SELECT number, spec FROM {quoted(app)}.headrace_builds WHERE live"):
                    spec = _spec(text)
                    versions[spec.full_name] = _offsets(db, app, number)
                    tables.update((spec.name, f"{spec.name}~{number}"))
            used: set[tuple[str, str]] = set()
            _restrict(db, tables, limits, used)
            answer = _answered(db, statement, parameters, limits)
            read = {f"{app}.{table.rpartition('~')[0] or table}" for app, table in used}
            return Answer(
                answer.columns, answer.rows, {n: v for n, v in versions.items() if n in read}, answer.truncated
            )

    def _attach(self, db: sqlite3.Connection) -> list[str]:
        attached = []
        for app in list(self._apps())[:MAX_APPS]:
            path = self._folder / f"{app}{SUFFIX}"
            if path.exists():
                db.execute(f"ATTACH ? AS {quoted(app)}", (_read_only(path),))
                attached.append(app)
        return attached


def _read_only(path: Path) -> str:
    return f"{path.resolve().as_uri()}?mode=ro"


def _spec(text: str) -> ViewSpec:
    return ViewSpec.from_json(json.loads(text))


def _offsets(db: sqlite3.Connection, schema: str, build: int) -> Offsets:
    statement = f"SELECT partition, following FROM {quoted(schema)}.headrace_offsets WHERE build = ?"
    return dict(db.execute(statement, (build,)).fetchall())


class _Sqlite:
    """What SQLite says in its own way about one question. The index over a key has blobs where a null is, so it is used
    by conditions on the whole key alone."""

    everything = -1

    def __init__(self, spec: ViewSpec, question: Question) -> None:
        given = {condition.column for condition in question.where if condition.operator in ("=", "IS")}
        self._indexed = set(spec.key_columns) if given >= set(spec.key_columns) else set()

    def mark(self, number: int) -> str:
        return "?"

    def shown(self, column: Column) -> str:
        return quoted(column.name)

    def test(self, condition: Condition, bind: Bind) -> str:
        column = condition.column
        if column in self._indexed and condition.operator in ("=", "IS"):
            return f"{key_expression(column)} = ifnull({bind(condition.value)}, x'')"
        if column.kind is Kind.decimal:
            return f"{_comparable(column)} {condition.operator} CAST({bind(condition.value)} AS REAL)"
        return f"{quoted(column.name)} {condition.operator} {bind(condition.value)}"

    def null(self, condition: Condition) -> str:
        if condition.column in self._indexed and condition.operator == "IS":
            return f"{key_expression(condition.column)} = x''"
        return f"{quoted(condition.column.name)} {condition.operator} NULL"

    def order(self, column: Column, descending: bool) -> str:
        return f"{_comparable(column)} {'DESC' if descending else 'ASC'}"


def _comparable(column: Column) -> str:
    """Decimals are kept as exact text; they compare as numbers."""
    return f"CAST({quoted(column.name)} AS REAL)" if column.kind is Kind.decimal else quoted(column.name)


def _end_in(db: sqlite3.Connection, seconds: float) -> None:
    """Statements on this connection are interrupted after so many seconds."""
    deadline = time.monotonic() + seconds
    db.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)


@contextmanager
def _bounded(db: sqlite3.Connection, seconds: float) -> Iterator[None]:
    _end_in(db, seconds)
    try:
        yield
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        raise took_too_long(seconds) from error


def _restrict(db: sqlite3.Connection, tables: set[str], limits: SqlLimits, used: set[tuple[str, str]]) -> None:
    """From here on this connection reads views and does nothing else, for a while."""

    def decide(action: int, first: str | None, second: str | None, schema: str | None, _: str | None) -> int:
        if action == sqlite3.SQLITE_READ and (first in tables or first in _TABLES_ALLOWED or not first):
            used.add((schema or "", first or ""))
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS_REFUSED:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY

    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.value_bytes)
    db.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000)
    db.set_authorizer(decide)
    _end_in(db, limits.seconds)


def _answered(db: sqlite3.Connection, statement: str, parameters: Sequence[Any], limits: SqlLimits) -> Answer:
    started = time.monotonic()
    try:
        cursor = db.execute(statement, parameters)
        if cursor.description is None:
            raise InvalidQuery("this statement gives no rows", hint="only SELECT and VALUES are allowed")
        rows, truncated = _fetched(cursor, limits)
    except (sqlite3.Error, sqlite3.Warning, OverflowError, ValueError) as error:
        raise _explained(error, time.monotonic() - started, limits) from error
    names = [entry[0] for entry in cursor.description]
    columns = tuple(Column(name, _loose_type(rows, at)) for at, name in enumerate(names))
    return Answer(columns, [tuple(_shown(cell) for cell in row) for row in rows], {}, truncated)


def _fetched(cursor: sqlite3.Cursor, limits: SqlLimits) -> tuple[list[tuple[Any, ...]], bool]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    while batch := cursor.fetchmany(min(500, limits.rows + 1 - len(rows))):
        rows += batch
        size += sum(len(cell) for row in batch for cell in row if isinstance(cell, str | bytes))
        if len(rows) > limits.rows:
            return rows[: limits.rows], True
        if size > limits.cells_bytes:
            return rows, True
    return rows, False


def _shown(cell: Any) -> Any:
    """Bytes as views have them."""
    return base64.b64encode(cell).decode() if isinstance(cell, bytes) else cell


def _loose_type(rows: Sequence[tuple[Any, ...]], at: int) -> str:
    kinds = {type(row[at]) for row in rows} - {type(None)}
    if kinds == {int, float}:
        return "double"
    return _LOOSE_TYPES[kinds.pop()] if len(kinds) == 1 else "string"


def _explained(error: Exception, seconds: float, limits: SqlLimits) -> InvalidQuery:
    text = str(error)
    if "interrupted" in text and seconds >= limits.seconds * 0.9:
        return took_too_long(limits.seconds)
    if "not authorized" in text or "prohibited" in text:
        return InvalidQuery("only SELECT over views is allowed", detail=text)
    return InvalidQuery(f"the query cannot be run: {text}")
