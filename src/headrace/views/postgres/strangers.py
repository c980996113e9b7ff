"""Strangers' SQL over views in PostgreSQL: it reads views and does nothing else, for a bounded time.

A statement is not run as it comes. PostgreSQL makes a temporary view of it, which takes one SELECT or VALUES and runs
nothing; what it made of the text says which tables and functions it uses. If all tables are our views, and all
functions are PostgreSQL's own that look at nothing but their arguments (or are listed here), the transaction is made
read-only and that very view is read; then all of it is rolled back. So what was checked is what runs.

The dialect is PostgreSQL's; ``?`` stands for a parameter, as in SQLite. ``shop.revenue``, or ``revenue``: the first app
that has it. What a query takes of the server's memory is bounded by the server's own settings alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from headrace.errors import InvalidQuery
from headrace.views.columns import Column
from headrace.views.postgres.address import Connection, end_in, execute, fetch
from headrace.views.postgres.tables import Schema
from headrace.views.postgres.types import ResultType, result_type
from headrace.views.statement import quoted
from headrace.views.store import Answer, Offsets, SqlLimits, took_too_long

__all__ = ["answered", "with_parameters"]

ATTEMPTS = 5
_HARMLESS = frozenset(
    """
    age array_to_json array_to_string clock_timestamp concat concat_ws date date_part date_trunc extract format
    gen_random_uuid generate_series interval json_agg json_build_array json_build_object json_object_agg json_to_record
    json_to_recordset jsonb_agg jsonb_build_array jsonb_build_object jsonb_object_agg jsonb_to_record jsonb_to_recordset
    make_timestamptz now quote_literal random row_to_json statement_timestamp time timestamp timestamptz timetz timezone
    to_char to_date to_json to_jsonb to_number to_timestamp transaction_timestamp
    """.split()  # noqa: SIM905 - as words they can be read
)
"""Functions that depend on more than their arguments, and on nothing that is anybody's secret."""
_FUNCTIONS = re.compile(r":(?:funcid|aggfnoid|winfnoid) (\d+)")
_RELATIONS = re.compile(r":relid (\d+)")
_PIECES = re.compile(
    r"""\b[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/|\?""", re.DOTALL
)
"""What may hold a question mark that is no parameter, and those that are."""
_ONLY_SELECT = "only SELECT over views is allowed"
_Q = "pg_temp.headrace_question"


@dataclass(frozen=True)
class _Readable:
    """A view that may be read: its live build as the snapshot has it."""

    app: str
    name: str
    build: int
    offsets: Offsets


def answered(
    db: Connection, apps: Sequence[str], statement: str, parameters: Sequence[Any], limits: SqlLimits
) -> Answer:
    """The answer to a statement; InvalidQuery says why there is none."""
    started = time.monotonic()
    try:
        text = with_parameters(statement, parameters, db)
        for _ in range(ATTEMPTS):
            answer, used = _attempt(db, apps, text, limits)
            if all(_live_build(db, view) == view.build for view in used):
                return answer
    except (psycopg.Error, UnicodeError) as error:
        explained = _explained(error, time.monotonic() - started, limits)
        if explained is None:
            raise
        raise explained from None
    raise InvalidQuery("the views are being rebuilt", hint="ask again")


def with_parameters(statement: str, parameters: Sequence[Any], db: Connection | None = None) -> str:
    """A statement with its parameters as literals, as a view cannot have any; InvalidQuery if their number is wrong."""
    if "\0" in statement:
        raise InvalidQuery("a statement has no zero bytes")
    if not parameters:
        return statement
    left = list(parameters)

    def filled(piece: re.Match[str]) -> str:
        if piece[0] != "?":
            return piece[0]
        if not left:
            raise InvalidQuery(f"the statement has more parameters than the {len(parameters)} that are given")
        return sql.Literal(left.pop(0)).as_string(db)

    text = _PIECES.sub(filled, statement)
    if left:
        raise InvalidQuery(
            f"{len(parameters)} parameters are given, and the statement has {len(parameters) - len(left)}"
        )
    return text


def _attempt(db: Connection, apps: Sequence[str], text: str, limits: SqlLimits) -> tuple[Answer, list[_Readable]]:
    """Ask once. A view that is swapped between the snapshot and the statement is seen by its build afterwards."""
    with db.transaction(force_rollback=True):
        execute(db, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        end_in(db, limits.seconds)
        readable = _readable(db, apps)
        path = ", ".join(quoted(app) for app in dict.fromkeys(view.app for view in readable.values()))
        execute(db, f"SET LOCAL search_path = {path + ', ' if path else ''}pg_catalog, pg_temp")
        columns = _described(db, text)
        names = ", ".join(f"c{number}" for number in range(len(columns)))
        _made(db, f"CREATE TEMPORARY VIEW {_Q} ({names}) AS {text}")
        execute(db, "SET LOCAL search_path = ''")
        used = [readable[number] for number in _checked(db, set(readable))]
        execute(db, "SET TRANSACTION READ ONLY")
        shown = ", ".join(kind.shown(f"c{number}") for number, (_, kind) in enumerate(columns))
        rows, truncated = _fetched(db, f"SELECT {shown} FROM {_Q} LIMIT {limits.rows + 1}", limits)
    made, rows = _loosened(columns, rows)
    versions = {f"{view.app}.{view.name}": view.offsets for view in used}
    return Answer(made, rows, versions, truncated), used


def _readable(db: Connection, apps: Sequence[str]) -> dict[int, _Readable]:
    """All views that can be asked, by PostgreSQL's number of them."""
    there = fetch(
        db,
        "SELECT nspname FROM pg_namespace n JOIN pg_class c ON relnamespace = n.oid AND relname = 'headrace_builds'"
        " WHERE nspname = ANY($1::text[]) ORDER BY array_position($1::text[], nspname::text)",
        [list(apps)],
    )
    found = {}
    for (app,) in there:
        schema = Schema(app)
        for relation, number, name, offsets in fetch(
            db,
            "SELECT to_regclass(format('%I.%I', $1::text, view))::oid, number, view,"
            f" ARRAY(SELECT ARRAY[partition, following] FROM {schema.offsets} WHERE build = number)"
            f" FROM {schema.builds} WHERE live",
            [app],
        ):
            found[relation] = _Readable(app, name, number, dict(offsets))
    return found


def _live_build(db: Connection, view: _Readable) -> int | None:
    found = fetch(db, f"SELECT number FROM {Schema(view.app).builds} WHERE view = $1 AND live", [view.name])
    return found[0][0] if found else None


def _described(db: Connection, text: str) -> list[tuple[str, ResultType]]:
    """The columns that one statement gives, by name and type; nothing is run. Two statements are refused here."""
    made = db.pgconn.prepare(b"", text.encode())
    if made.status != psycopg.pq.ExecStatus.COMMAND_OK:
        raise psycopg.errors.error_from_result(made)
    told = db.pgconn.describe_prepared(b"")
    if not told.nfields:
        raise InvalidQuery(_ONLY_SELECT, detail="this statement gives no rows")
    return [
        ((told.fname(number) or b"").decode(), result_type(told.ftype(number), told.fmod(number)))
        for number in range(told.nfields)
    ]


def _made(db: Connection, statement: str) -> None:
    try:
        execute(db, statement)
    except psycopg.errors.SyntaxError:
        raise InvalidQuery(_ONLY_SELECT) from None


def _checked(db: Connection, allowed: set[int]) -> set[int]:
    """Which views the question reads; InvalidQuery if it reads or does anything else."""
    [(rule, itself, tree)] = fetch(
        db, f"SELECT oid, ev_class, ev_action::text FROM pg_rewrite WHERE ev_class = '{_Q}'::regclass"
    )
    relations = {int(number) for number in _RELATIONS.findall(tree)} - {0, itself}
    outside = fetch(
        db,
        "SELECT pg_describe_object(refclassid, refobjid, 0) FROM pg_depend WHERE classid = 'pg_rewrite'::regclass"
        " AND objid = $1 AND NOT (refclassid = 'pg_class'::regclass AND refobjid = ANY($2::oid[]))"
        " UNION ALL SELECT pg_describe_object('pg_class'::regclass, number, 0) FROM unnest($3::oid[]) number",
        [rule, [*allowed, itself], list(relations - allowed)],
    )
    functions = fetch(
        db,
        "SELECT proname FROM pg_proc WHERE oid = ANY($1::oid[]) AND (pronamespace <> 'pg_catalog'::regnamespace"
        " OR provolatile <> 'i' AND proname <> ALL($2::text[]))",
        [[int(number) for number in _FUNCTIONS.findall(tree)], sorted(_HARMLESS)],
    )
    refused = [what for (what,) in outside] + [f"function {name}" for (name,) in functions]
    if refused:
        raise InvalidQuery(_ONLY_SELECT, detail=f"it uses {refused[0]}")
    return relations


def _fetched(db: Connection, statement: str, limits: SqlLimits) -> tuple[list[tuple[Any, ...]], bool]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    with db.cursor() as cursor, closing(cursor.stream(statement.encode())) as coming:  # type: ignore[type-var]
        for row in coming:
            if len(rows) == limits.rows:
                return rows, True
            rows.append(row)
            size += sum(len(cell) for cell in row if isinstance(cell, str))
            if size > limits.cells_bytes:
                return rows, True
    return rows, False


def _loosened(
    columns: Sequence[tuple[str, ResultType]], rows: list[tuple[Any, ...]]
) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]]:
    """Columns and rows, with the numbers that PostgreSQL gives for sums as numbers."""
    if not any(kind.is_loose for _, kind in columns):
        return tuple(Column(name, kind.spark) for name, kind in columns), rows
    made, values = [], []
    for at, (name, kind) in enumerate(columns):
        cells: list[Any] = [row[at] for row in rows]
        spark, cells = kind.loose(cells) if kind.is_loose else (kind.spark, cells)
        made.append(Column(name, spark))
        values.append(cells)
    return tuple(made), list(zip(*values, strict=True))


def _explained(error: Exception, seconds: float, limits: SqlLimits) -> InvalidQuery | None:
    """What is wrong with the statement; None if it is the server's trouble."""
    if not isinstance(error, psycopg.Error):
        return InvalidQuery(f"the query cannot be run: {error}")
    state = error.sqlstate or ("22" if isinstance(error, psycopg.DataError) else "08")
    if state == "57014" and seconds >= limits.seconds * 0.9:
        return took_too_long(limits.seconds)
    if state[:2] in ("08", "40", "53", "55", "57", "58", "XX"):
        return None
    return InvalidQuery(f"the query cannot be run: {error.diag.message_primary or error}")
