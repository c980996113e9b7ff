"""MariaDB and MySQL as sources: what a table is, how the server's log is doing, and what capture has there.

In the database of the first captured table there are, per app: a signal table (which tells the connector to read a
table again) and a heartbeat table (whose one row moves the position on while all else is quiet). ``mariadb_setup``
makes them.
"""

from __future__ import annotations

import json
import ssl
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pymysql

from headrace.capture.binlog import Place, end_of_log
from headrace.capture.columns import TableColumn, TableLook
from headrace.capture.connectors import Connector
from headrace.capture.declarations import MariaDB
from headrace.capture.health import Health
from headrace.capture.positions import age_s
from headrace.capture.problems import Unreachable, refusing
from headrace.errors import HeadraceError, NotFound

__all__ = [
    "drop",
    "fetched",
    "has_reached",
    "health",
    "look",
    "look_at",
    "open_database",
    "own_schema",
    "position",
    "quoted",
    "quoted_table",
    "signal",
    "source_of",
]

CONNECT_PATIENCE_S = 10
_GONE = (2006, 2013, 1927)
_NO_DATABASE = (1044, 1049)
_NO_TABLE = (1142, 1146)


@contextmanager
def open_database(source: MariaDB) -> Iterator[Any]:
    """A connection that commits each statement. Failing, the error says what to do."""
    try:
        connection = pymysql.connect(
            host=source.host,
            port=source.port,
            user=source.user,
            password=source.password,
            database=source.database,
            connect_timeout=CONNECT_PATIENCE_S,
            autocommit=True,
            # where the server can: MySQL takes passwords over nothing else, and Debezium does the same
            ssl=_unverified() if source.kind == "mysql" else None,
        )
    except pymysql.MySQLError as error:
        raise _unreachable(source, error) from None
    try:
        yield connection
    except pymysql.MySQLError as error:
        raise _failed(source, error) from None
    finally:
        if connection.open:
            connection.close()


def look(source: MariaDB) -> TableLook:
    """A table's columns and primary key."""
    with open_database(source) as connection:
        found = look_at(connection, source)
        if found is None:
            rows = fetched(
                connection, "select table_name from information_schema.tables where table_schema = database()"
            )
            names = ", ".join(sorted(str(name) for (name,) in rows)) or "none"
            raise NotFound(f"there is no table {source.table_name!r} in {source.server}.", hint=f"there are: {names}")
    return found


def drop(connector: Connector, *, everything: bool = True) -> list[str]:
    """Take away our tables (everything). Returns what was dropped."""
    if not everything:
        return []
    source, done = source_of(connector), []
    with open_database(source) as connection:
        for name in (connector.signal_table, connector.heartbeat_table):
            fetched(connection, f"drop table if exists {quoted(own_schema(source))}.{quoted(name)}")
            done.append(f"table {own_schema(source)}.{name}")
    return done


def signal(connector: Connector, schema: str, kind: str, data: dict[str, Any]) -> str:
    """Tell the connector something, through its table. Returns the signal's id."""
    chosen = f"headrace-{uuid.uuid4()}"
    statement = f"insert into {quoted(schema)}.{quoted(connector.signal_table)} (id, type, data) values (%s, %s, %s)"
    with open_database(source_of(connector)) as connection, connection.cursor() as cursor:
        cursor.execute(statement, (chosen, kind, json.dumps(data)))
    return chosen


def position(connector: Connector) -> tuple[str, int]:
    """Where the server's log ends now: file and position."""
    with open_database(source_of(connector)) as connection:
        return end_of_log(connection)


def has_reached(offset: Mapping[str, Any], end: tuple[str, int]) -> bool:
    """Whether a stored position is at that end or behind it. Heartbeats move it on."""
    return not offset.get("snapshot") and Place.of(offset.get("file"), offset.get("pos")) >= Place.of(*end)


def health(connector: Connector, offset: Mapping[str, Any] | None) -> Health:
    """How the server's side is doing; whether the stored position may be gone on from."""
    with open_database(source_of(connector)) as connection:
        beat = _beat(connection, connector)
        end = end_of_log(connection)
        keep_s = _keep_s(connection)
        sizes = {str(row[0]): int(row[1]) for row in fetched(connection, "show binary logs")}
    if offset is None or not offset.get("file"):
        return Health(keep_s=keep_s, beat=beat, end=end)
    at, total = Place.of(offset["file"], offset.get("pos")), 0
    for name, size in sizes.items():
        number = Place.of(name, 0).number
        if number >= at.number:
            total += size - (at.pos if number == at.number else 0)
    refusal = None
    if Place.of(*end) < at:
        refusal = (
            f"the server's log ends at {end[0]}:{end[1]}, before {offset['file']}:{offset['pos']}, which was captured "
            "already: this is an older copy of the database (a failover, or a backup that was restored)"
        )
    elif str(offset["file"]) not in sizes:
        refusal = f"the server has purged {offset['file']}, which is still needed (binlog_expire_logs_seconds)"
    behind_s = age_s(offset)
    total = max(0, total)
    return Health(total, total, keep_s=keep_s, behind_s=behind_s, refusal=refusal, beat=beat, end=end)


def _beat(connection: Any, connector: Connector) -> int | None:
    """The heartbeat, in microseconds; None before it is set up."""
    table = f"{quoted(own_schema(source_of(connector)))}.{quoted(connector.heartbeat_table)}"
    try:
        found = fetched(connection, f"select unix_timestamp(beat) * 1000000 from {table}")
    except pymysql.MySQLError as error:
        if error.args[0] not in _NO_TABLE:
            raise
        return None
    return int(found[0][0]) if found else None


def _keep_s(connection: Any) -> int:
    """How long the server keeps its log; 0: for ever. Old servers count in days."""
    names = "'binlog_expire_logs_seconds', 'expire_logs_days'"
    found = dict(fetched(connection, f"show variables where variable_name in ({names})"))
    days = float(found.get("expire_logs_days") or 0)
    return int(found.get("binlog_expire_logs_seconds") or 0) or round(days * 86_400)


def look_at(connection: Any, source: MariaDB) -> TableLook | None:
    """What a table is, over a connection; None if there is none, or we may not see it."""
    schema, _, table = source.table_name.partition(".")
    rows = fetched(
        connection,
        "select column_name, column_type, is_nullable, column_key from information_schema.columns"
        " where table_schema = %s and table_name = %s order by ordinal_position",
        (schema, table),
    )
    if not rows:
        return None
    key = fetched(
        connection,
        "select column_name from information_schema.key_column_usage where constraint_name = 'PRIMARY'"
        " and table_schema = %s and table_name = %s order by ordinal_position",
        (schema, table),
    )
    columns = tuple(TableColumn(str(name), str(native), nullable == "YES") for name, native, nullable, _ in rows)
    return TableLook(columns, tuple(str(name) for (name,) in key))


def fetched(connection: Any, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The rows that a statement gives."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _failed(source: MariaDB, error: pymysql.MySQLError) -> HeadraceError:
    """What went wrong as it was asked."""
    code = error.args[0] if error.args else 0
    if code in _GONE or isinstance(error, pymysql.InterfaceError):
        return _unreachable(source, error)
    return refusing(source.server, source.user, _text(error))


def _text(error: pymysql.MySQLError) -> str:
    return " ".join(str(part) for part in error.args[1:]) or str(error)


def _unreachable(source: MariaDB, error: pymysql.MySQLError) -> Unreachable:
    code = error.args[0] if error.args else 0
    if code == 1045:
        return Unreachable(
            f"{source.server} refuses the password of user {source.user!r}.",
            hint="put the right one into the address, or: ALTER USER ... IDENTIFIED BY '...';",
        )
    if code in _NO_DATABASE:
        return Unreachable(
            f"{source.server} does not exist, or user {source.user!r} may not use it.",
            hint=f"CREATE DATABASE {quoted(source.database)};  -- or grant SELECT on it",
        )
    return Unreachable(
        f"{source.server} cannot be reached.",
        detail=_text(error),
        hint="is the server up, and are host and port right?",
    )


def source_of(connector: Connector) -> MariaDB:
    """How the database is reached."""
    assert isinstance(connector.source, MariaDB)
    return connector.source


def own_schema(source: MariaDB) -> str:
    """Where our tables are: the database of the first captured table."""
    return source.table_name.partition(".")[0]


def quoted_table(source: MariaDB) -> str:
    """`` `database`.`table` ``."""
    schema, _, table = source.table_name.partition(".")
    return f"{quoted(schema)}.{quoted(table)}"


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return "`" + name.replace("`", "``") + "`"
