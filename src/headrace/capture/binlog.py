"""The binary log of MariaDB and MySQL, looked into by SQL: where it ends, and where a table was truncated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pymysql

__all__ = ["Place", "Truncation", "end_of_log", "truncate_count", "truncated_table", "truncations"]

EVENTS_AT_ONCE = 1000
"""The server holds up commits while it lists events of the file that it writes."""
_FIRST = 4
_NAME = r"`(?:[^`]|``)+`|[\w$]+"
_TRUNCATE = re.compile(
    r"(?:use (?P<used>`(?:[^`]|``)+`); )?(?:\s|/\*.*?\*/|(?:#|-- )[^\n]*\n)*"
    rf"truncate\s+(?:table\s+)?(?:(?P<database>{_NAME})\s*\.\s*)?(?P<table>{_NAME})",
    re.IGNORECASE | re.DOTALL,
)


class Place(NamedTuple):
    """A place in the log: the number of its file, and where in that. Places of one server are in order."""

    number: int
    pos: int

    @classmethod
    def of(cls, file: object, pos: object) -> Place:
        """The place that a file's name and a position in it say."""
        found = re.search(r"(\d+)$", str(file or ""))
        return cls(int(found[1]) if found else 0, int(str(pos or 0)))


class Truncation(NamedTuple):
    """A TRUNCATE: of which table (``database.table``), and from where to where in the log it is told."""

    table: str
    at: Place
    end: Place


def end_of_log(connection: Any) -> tuple[str, int]:
    """Where the log ends now: file and position."""
    for statement in ("show master status", "show binary log status"):
        with connection.cursor() as cursor:
            try:
                cursor.execute(statement)
            except pymysql.ProgrammingError:  # servers know the one or the other
                continue
            row = cursor.fetchone()
        if row:
            return str(row[0]), int(row[1])
    return "", 0


def truncate_count(connection: Any) -> int:
    """How often anything was truncated since the server started. It counts before the log tells of it."""
    with connection.cursor() as cursor:
        cursor.execute("show global status like 'Com_truncate'")
        row = cursor.fetchone()
    return int(row[1]) if row else 0


def truncations(connection: Any, since: Place, until: Place) -> Iterator[Truncation]:
    """Every TRUNCATE between two places, of any table, in order."""
    with connection.cursor() as cursor:
        cursor.execute("show binary logs")
        names = {Place.of(row[0], 0).number: str(row[0]) for row in cursor.fetchall()}
    for number, name in sorted(names.items()):
        if since.number <= number <= until.number:
            start = Place(number, since.pos if number == since.number else _FIRST)
            for pos, kind, end, info in _events(connection, name, start, until):
                table = truncated_table(info) if kind == "Query" else None
                if table is not None:
                    yield Truncation(table, Place(number, pos), Place(number, end))


def truncated_table(info: str) -> str | None:
    """The table that a statement truncates (as the log shows statements), as ``database.table``."""
    found = _TRUNCATE.match(info)
    if found is None:
        return None
    return f"{_plain(found['database'] or found['used'] or '')}.{_plain(found['table'])}"


def _events(connection: Any, file: str, start: Place, until: Place) -> Iterator[tuple[int, str, int, str]]:
    """(position, kind, end, text) of a file's events, some at a time."""
    at = max(start.pos, _FIRST)
    while Place(start.number, at) < until:
        with connection.cursor() as cursor:
            cursor.execute(f"show binlog events in %s from {at} limit {EVENTS_AT_ONCE}", (file,))
            rows: Iterable[tuple[Any, ...]] = cursor.fetchall()
        ends = [at]
        for _, pos, kind, _, end, info in rows:
            yield int(pos), str(kind), int(end), str(info)
            ends.append(int(end))
        if len(ends) <= EVENTS_AT_ONCE:
            return
        at = max(ends)


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
