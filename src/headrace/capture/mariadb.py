"""MariaDB and MySQL as sources: what a table is, what stands in the way of capturing it, and what capture needs there.

In the database of the first captured table there are, per app: a signal table (which tells the connector to read a
table again) and a heartbeat table (whose one row moves the position on while all else is quiet).
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
from headrace.capture.declarations import Captured, MariaDB
from headrace.capture.health import Health
from headrace.capture.problems import Problem, Unreachable, refused
from headrace.errors import NotFound

__all__ = ["drop", "has_reached", "health", "look", "open_database", "position", "prepare", "problems", "signal"]

CONNECT_PATIENCE_S = 10
_GRANTS = {
    "REPLICATION SLAVE": ("REPLICATION SLAVE", "REPLICATION REPLICA"),
    "REPLICATION CLIENT": ("REPLICATION CLIENT", "BINLOG MONITOR"),
    "RELOAD": ("RELOAD",),
    "SELECT": ("SELECT",),
}
_GONE = (2006, 2013, 1927)
_DENIED, _UNKNOWN_DATABASE = (1044, 1142, 1143, 1227), 1049


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
    except pymysql.OperationalError as error:
        if error.args and error.args[0] in _GONE:
            raise _unreachable(source, error) from None
        raise
    finally:
        if connection.open:
            connection.close()


def look(source: MariaDB) -> TableLook:
    """A table's columns and primary key."""
    with open_database(source) as connection:
        found = _look(connection, source)
        if found is None:
            rows = _rows(connection, "select table_name from information_schema.tables where table_schema = database()")
            names = ", ".join(sorted(str(name) for (name,) in rows)) or "none"
            raise NotFound(f"there is no table {source.table_name!r} in {source.server}.", hint=f"there are: {names}")
    return found


def problems(connector: Connector) -> list[Problem]:
    """Everything that stands in the way, each with the statement that cures it. Raises if nobody can be asked."""
    with open_database(_source(connector)) as connection:
        found = list(_server_problems(connection, connector))
        for table in connector.tables:
            found += _table_problems(connection, table)
    return found


def prepare(connector: Connector) -> str:
    """Make what capture needs in the database and is not there. Returns the database of the signal table."""
    source = _source(connector)
    schema = _schema(source)
    with open_database(source) as connection:
        for statement in _setup(connector, schema):
            try:
                _rows(connection, statement)
            except pymysql.MySQLError as error:
                if error.args[0] not in _DENIED:
                    raise
                problem = Problem(f"user {source.user!r} may not set up capture: {error.args[1]}.", f"{statement};")
                raise refused(connector.server, [problem]) from None
    return schema


def drop(connector: Connector, *, everything: bool = True) -> list[str]:
    """Take away our tables (everything). Returns what was dropped."""
    if not everything:
        return []
    source, done = _source(connector), []
    with open_database(source) as connection:
        for name in (connector.signal_table, connector.heartbeat_table):
            _rows(connection, f"drop table if exists {_quoted(_schema(source))}.{_quoted(name)}")
            done.append(f"table {_schema(source)}.{name}")
    return done


def signal(connector: Connector, schema: str, kind: str, data: dict[str, Any]) -> str:
    """Tell the connector something, through its table. Returns the signal's id."""
    chosen = f"headrace-{uuid.uuid4()}"
    statement = f"insert into {_quoted(schema)}.{_quoted(connector.signal_table)} (id, type, data) values (%s, %s, %s)"
    with open_database(_source(connector)) as connection, connection.cursor() as cursor:
        cursor.execute(statement, (chosen, kind, json.dumps(data)))
    return chosen


def position(connector: Connector) -> tuple[str, int]:
    """Where the server's log ends now: file and position."""
    with open_database(_source(connector)) as connection:
        return end_of_log(connection)


def has_reached(offset: Mapping[str, Any], end: tuple[str, int]) -> bool:
    """Whether a stored position is at that end or behind it. Heartbeats move it on."""
    return not offset.get("snapshot") and Place.of(offset.get("file"), offset.get("pos")) >= Place.of(*end)


def health(connector: Connector, offset: Mapping[str, Any] | None) -> Health:
    """How the server's side is doing; whether the stored position may be gone on from."""
    with open_database(_source(connector)) as connection:
        end = end_of_log(connection)
        sizes = {str(row[0]): int(row[1]) for row in _rows(connection, "show binary logs")}
    if offset is None or not offset.get("file"):
        return Health()
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
    return Health(max(0, total), max(0, total), refusal=refusal)


def _server_problems(connection: Any, connector: Connector) -> Iterator[Problem]:
    found = dict(_rows(connection, "show variables where variable_name in "
                 "('log_bin', 'binlog_format', 'binlog_row_image', 'server_id')"))  # fmt: skip
    if found.get("log_bin") != "ON":
        yield Problem(
            "the server writes no binary log.",
            "in the server's configuration: [mysqld] log_bin = binlog, server_id = 1;  -- then restart the server",
        )
    if found.get("binlog_format", "ROW") != "ROW":
        yield Problem(
            f"binlog_format is {found['binlog_format']}, so the log does not say which rows changed.",
            "SET GLOBAL binlog_format = 'ROW';  -- and in the server's configuration",
        )
    if found.get("binlog_row_image", "FULL") != "FULL":
        yield Problem(
            f"binlog_row_image is {found['binlog_row_image']}, so changes do not carry whole rows.",
            "SET GLOBAL binlog_row_image = 'FULL';  -- and in the server's configuration",
        )
    granted = " ".join(str(row[0]).upper() for row in _rows(connection, "show grants"))
    missing = [
        name for name, words in _GRANTS.items() if not any(word in granted for word in (*words, "ALL PRIVILEGES"))
    ]
    if missing:
        user = _quoted_user(connection)
        yield Problem(
            f"user {connector.source.user!r} lacks {', '.join(missing)}.",
            f"GRANT {', '.join(missing)} ON *.* TO {user};",
        )


def _table_problems(connection: Any, table: Captured) -> Iterator[Problem]:
    source = _mariadb(table)
    found = _look(connection, source)
    if found is None:
        yield Problem(
            f"there is no table {source.table_name}, or user {source.user!r} may not see it.",
            f"GRANT SELECT ON {_full(source)} TO {_quoted_user(connection)};  -- if it exists",
        )
        return
    names = {column.name for column in found.columns}
    for column in table.outbox.columns if table.outbox is not None else table.key:
        if column not in names:
            yield Problem(f"{source.table_name} has no column {column!r}.", f"it has: {', '.join(sorted(names))}")
    if not found.key and not table.key:
        yield Problem(
            f"{source.table_name} has no primary key, so its changes cannot be told apart.",
            f"ALTER TABLE {_full(source)} ADD PRIMARY KEY (...);  -- or say key= in the app",
        )


def _setup(connector: Connector, schema: str) -> list[str]:
    signals = f"{_quoted(schema)}.{_quoted(connector.signal_table)}"
    beats = f"{_quoted(schema)}.{_quoted(connector.heartbeat_table)}"
    return [
        f"create table if not exists {signals} (id varchar(64) primary key, type varchar(32) not null, data text)",
        f"create table if not exists {beats} (id int primary key, beat timestamp(6) not null)",
        f"insert ignore into {beats} values (1, now(6))",
    ]


def _look(connection: Any, source: MariaDB) -> TableLook | None:
    schema, _, table = source.table_name.partition(".")
    rows = _rows(
        connection,
        "select column_name, column_type, is_nullable, column_key from information_schema.columns"
        " where table_schema = %s and table_name = %s order by ordinal_position",
        (schema, table),
    )
    if not rows:
        return None
    key = _rows(
        connection,
        "select column_name from information_schema.key_column_usage where constraint_name = 'PRIMARY'"
        " and table_schema = %s and table_name = %s order by ordinal_position",
        (schema, table),
    )
    columns = tuple(TableColumn(str(name), str(native), nullable == "YES") for name, native, nullable, _ in rows)
    return TableLook(columns, tuple(str(name) for (name,) in key))


def _rows(connection: Any, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _unreachable(source: MariaDB, error: pymysql.MySQLError) -> Unreachable:
    code = error.args[0] if error.args else 0
    text = " ".join(str(part) for part in error.args[1:]) or str(error)
    if code == 1045:
        return Unreachable(
            f"{source.server} refuses the password of user {source.user!r}.",
            hint="put the right one into the address, or: ALTER USER ... IDENTIFIED BY '...';",
        )
    if code in (_UNKNOWN_DATABASE, 1044):
        return Unreachable(
            f"{source.server} does not exist, or user {source.user!r} may not use it.",
            hint=f"CREATE DATABASE {_quoted(source.database)};  -- or grant SELECT on it",
        )
    return Unreachable(
        f"{source.server} cannot be reached.", detail=text, hint="is the server up, and are host and port right?"
    )


def _quoted_user(connection: Any) -> str:
    user, _, host = str(_rows(connection, "select current_user()")[0][0]).rpartition("@")
    return f"'{user}'@'{host}'"


def _source(connector: Connector) -> MariaDB:
    return _mariadb(connector.tables[0])


def _mariadb(table: Captured) -> MariaDB:
    assert isinstance(table.source, MariaDB)
    return table.source


def _schema(source: MariaDB) -> str:
    return source.table_name.partition(".")[0]


def _full(source: MariaDB) -> str:
    schema, _, table = source.table_name.partition(".")
    return f"{_quoted(schema)}.{_quoted(table)}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
