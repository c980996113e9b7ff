"""Answers from the schemas of views, each from one snapshot that says which changelog offsets it reflects.

Any thread asks; each answer has a connection to itself while it is made, and connections are kept for the next one.
The rows of a build are read from its own table, which the snapshot names: a view that is swapped meanwhile does not
show rows of one build under the offsets of another.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import psycopg

from headrace.errors import InvalidQuery, StoreAway, UnknownView
from headrace.views.catalog import ViewName, ViewSpec
from headrace.views.columns import Column
from headrace.views.postgres.address import Connection, PostgresAddress, end_in, execute, fetch
from headrace.views.postgres.strangers import answered
from headrace.views.postgres.tables import Schema
from headrace.views.postgres.types import given, postgres_type, shown
from headrace.views.question import Condition, Question
from headrace.views.statement import Bind, quoted, select, shown_rows, taken
from headrace.views.store import ANSWER_S, Answer, Offsets, SqlLimits, took_too_long

__all__ = ["PostgresReader"]

KEPT = 8
"""So many connections are kept while nobody asks."""
ATTEMPTS = 5
FEW, AT_ONCE = 100, 500
"""So many rows come in one piece; more do in pieces."""
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
_NOT_THERE = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)

T = TypeVar("T")


class _Moved(Exception):
    """The build that was to be read was dropped as it was asked for."""


class PostgresReader:
    """Reads the schemas of a database, one for each app."""

    def __init__(self, address: PostgresAddress, apps: Callable[[], Sequence[str]], seconds: float = ANSWER_S) -> None:
        """``apps`` says which apps there are now; ``seconds``: how long an answer from one view may take."""
        self._seconds = seconds
        self._address = address
        self._apps = apps
        self._idle: list[Connection] = []
        self._lock = threading.Lock()

    def select(self, view: ViewName, question: Question) -> Answer:
        """Rows of one view."""

        def read(db: Connection, spec: ViewSpec, table: str, offsets: Offsets) -> Answer:
            columns = question.columns or spec.columns
            try:
                statement, values = select(f"{table} AS t", columns, question, _Postgres())
                rows, more = _rows(db, statement, values, question)
            except (psycopg.DataError, ValueError) as error:
                raise InvalidQuery(f"the question cannot be answered: {error}") from None
            return Answer(columns, shown_rows(columns, rows), {spec.full_name: offsets}, more)

        return self._of_view(view, read)

    def count(self, view: ViewName) -> int:
        """How many rows a view has."""

        def read(db: Connection, spec: ViewSpec, table: str, offsets: Offsets) -> int:
            [(number,)] = fetch(db, f"SELECT count(*) FROM {table}")
            return int(number)

        return self._of_view(view, read)

    def sql(self, statement: str, parameters: Sequence[Any], limits: SqlLimits) -> Answer:
        """A read-only statement over all views."""
        return self._asked(lambda db: answered(db, list(self._apps()), statement, parameters, limits))

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _of_view(self, view: ViewName, read: Callable[[Connection, ViewSpec, str, Offsets], T]) -> T:
        app, name = view
        schema = Schema(app)

        def snapshot(db: Connection) -> T:
            with db.transaction():
                execute(db, _SNAPSHOT)
                end_in(db, self._seconds)
                for number, spec, offsets in _live(db, schema, name):
                    try:
                        return read(db, ViewSpec.from_json(spec), schema.table(name, number), dict(offsets))
                    except _NOT_THERE:
                        raise _Moved from None
                    except psycopg.errors.QueryCanceled:
                        raise took_too_long(self._seconds) from None
            raise UnknownView(f"view {app}.{name} is not in its store yet")

        for _ in range(ATTEMPTS):
            with contextlib.suppress(_Moved):
                return self._asked(snapshot)
        raise UnknownView(f"view {app}.{name} is not in its store: its table is gone")

    def _asked(self, ask: Callable[[Connection], T]) -> T:
        """An answer over a connection that was kept, or over a new one if there is none or the server has closed it."""
        kept = self._taken()
        if kept is not None:
            try:
                with self._address.told(), self._given_back(kept):
                    return ask(kept)
            except StoreAway:
                kept.close()
        with self._address.told(), self._given_back(self._address.connect()) as db:
            return ask(db)

    def _taken(self) -> Connection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    @contextlib.contextmanager
    def _given_back(self, db: Connection) -> Iterator[Connection]:
        try:
            yield db
        finally:
            with self._lock:
                at_rest = db.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
                keep = at_rest and not db.closed and len(self._idle) < KEPT
                if keep:
                    self._idle.append(db)
            if not keep:
                db.close()


def _rows(
    db: Connection, statement: str, values: Sequence[Any], question: Question
) -> tuple[list[tuple[Any, ...]], bool]:
    """What a question gets; where it may be much, taken as it comes, so that it is refused in time."""
    if question.limit is not None and question.limit <= FEW:
        return taken(fetch(db, statement, values), question)
    size = AT_ONCE if psycopg.capabilities.has_stream_chunked() else 1
    with db.cursor() as cursor, contextlib.closing(cursor.stream(statement.encode(), values, size=size)) as coming:  # type: ignore[type-var]
        return taken(coming, question)


def _live(db: Connection, schema: Schema, view: str) -> list[tuple[Any, ...]]:
    """The live build of a view: its number, what it is, and its offsets."""
    try:
        return fetch(
            db,
            "SELECT number, spec, ARRAY(SELECT ARRAY[partition, following]"
            f" FROM {schema.offsets} WHERE build = number) FROM {schema.builds} WHERE view = $1 AND live",
            [view],
        )
    except _NOT_THERE:
        raise UnknownView(f"the views of app {schema.app!r} are not in their store yet") from None


class _Postgres:
    """What PostgreSQL says in its own way about a question to the table ``t``."""

    everything = None

    def mark(self, number: int) -> str:
        return f"${number}"

    def shown(self, column: Column) -> str:
        return shown(postgres_type(column), _of_table(column))

    def test(self, condition: Condition, bind: Bind) -> str:
        column = condition.column
        value = bind(given(column, condition.value))
        return f"{_of_table(column)} {condition.operator} {value}::{postgres_type(column)}"

    def null(self, condition: Condition) -> str:
        return f"{_of_table(condition.column)} {condition.operator} NULL"

    def order(self, column: Column, descending: bool) -> str:
        return f"{_of_table(column)} {'DESC NULLS LAST' if descending else 'ASC NULLS FIRST'}"


def _of_table(column: Column) -> str:
    """A column of the table: its name alone may mean what is shown of it."""
    return f"t.{quoted(column.name)}"
