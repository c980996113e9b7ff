"""Setting MariaDB and MySQL up for capture: what stands in the way, each with its cure, and what is made there.

What is missing is made if we may make it, and told as statements if not. That a table was made cannot be rolled back
there, so what we may do is not tried but read from the grants.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql

from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured, MariaDB
from headrace.capture.grants import Grants
from headrace.capture.mariadb import fetched, look_at, open_database, own_schema, quoted, quoted_table, source_of
from headrace.capture.problems import Problem, refused

__all__ = ["prepare", "problems"]

_EVERYWHERE = ("REPLICATION SLAVE", "REPLICATION CLIENT", "RELOAD")
_DENIED = (1044, 1142, 1143, 1227)


def problems(connector: Connector) -> list[Problem]:
    """Everything that stands in the way, each with the statement that cures it. Raises if nobody can be asked."""
    with open_database(source_of(connector)) as connection:
        grants = Grants(_granted(connection, connector))
        found = [*_server_problems(connection), *_right_problems(connection, connector, grants)]
        for table in connector.tables:
            found += _table_problems(connection, table, grants)
        if not found:
            found += _setup_problems(connection, connector, grants)
    return found


def prepare(connector: Connector) -> str:
    """Make what capture needs in the database and is not there. Returns the database of the signal table."""
    source = source_of(connector)
    with open_database(source) as connection:
        for statement, _, _ in _setup(connection, connector):
            try:
                fetched(connection, statement)
            except pymysql.MySQLError as error:
                if error.args[0] not in _DENIED:
                    raise
                problem = Problem(f"user {source.user!r} may not set up capture: {error.args[1]}.", f"{statement};")
                raise refused(connector.server, [problem]) from None
    return own_schema(source)


def _server_problems(connection: Any) -> Iterator[Problem]:
    found = dict(fetched(connection, "show variables where variable_name in "
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


def _right_problems(connection: Any, connector: Connector, grants: Grants) -> Iterator[Problem]:
    missing = ", ".join(right for right in _EVERYWHERE if not grants.allow(right))
    if missing:
        cure = f"GRANT {missing} ON *.* TO {_quoted_user(connection)};"
        yield Problem(f"user {connector.source.user!r} lacks {missing}.", cure)


def _table_problems(connection: Any, table: Captured, grants: Grants) -> Iterator[Problem]:
    source = table.source
    assert isinstance(source, MariaDB)
    found = look_at(connection, source)
    if found is None:
        yield Problem(
            f"there is no table {source.table_name}, or user {source.user!r} may not see it.",
            f"GRANT SELECT ON {quoted_table(source)} TO {_quoted_user(connection)};  -- if it exists",
        )
        return
    database, _, name = source.table_name.partition(".")
    if not grants.allow_on("SELECT", database, name):
        yield Problem(
            f"user {source.user!r} may not read {source.table_name}.",
            f"GRANT SELECT ON {quoted_table(source)} TO {_quoted_user(connection)};",
        )
    names = {column.name for column in found.columns}
    for column in table.outbox.columns if table.outbox is not None else table.key:
        if column not in names:
            yield Problem(f"{source.table_name} has no column {column!r}.", f"it has: {', '.join(sorted(names))}")
    if not found.key and not table.key:
        yield Problem(
            f"{source.table_name} has no primary key, so its changes cannot be told apart.",
            f"ALTER TABLE {quoted_table(source)} ADD PRIMARY KEY (...);  -- or say key= in the app",
        )


def _setup_problems(connection: Any, connector: Connector, grants: Grants) -> Iterator[Problem]:
    """What is still to be made and we may not make, and what we may not do with our tables."""
    source = source_of(connector)
    schema, user, who = own_schema(source), _quoted_user(connection), f"user {source.user!r}"
    missing = list(_setup(connection, connector))
    denied = [(right, table) for _, right, table in missing if not grants.allow_on(right, schema, table)]
    needed = {connector.signal_table: ("SELECT", "INSERT", "DELETE"), connector.heartbeat_table: ("SELECT", "UPDATE")}
    lacking = {
        table: [right for right in rights if not grants.allow_on(right, schema, table)]
        for table, rights in needed.items()
    }
    if denied or any(lacking.values()):  # rights on a table are granted when it is there
        for statement, _, table in missing:
            yield Problem(f"{who} is not let set up capture in {schema}.{table}.", f"{statement};")
    for table, rights in lacking.items():
        if rights:
            cure = f"GRANT {', '.join(needed[table])} ON {quoted(schema)}.{quoted(table)} TO {user};"
            yield Problem(f"{who} may not {' and '.join(rights).lower()} in {schema}.{table}.", cure)


def _setup(connection: Any, connector: Connector) -> Iterator[tuple[str, str, str]]:
    """The statements that make what is missing, in order; with each the right that it takes, and on which table."""
    schema = own_schema(source_of(connector))
    signals, beats = connector.signal_table, connector.heartbeat_table
    if not _exists(connection, schema, signals):
        columns = "id varchar(64) primary key, type varchar(32) not null, data text"
        yield f"create table if not exists {quoted(schema)}.{quoted(signals)} ({columns})", "CREATE", signals
    full = f"{quoted(schema)}.{quoted(beats)}"
    is_new = not _exists(connection, schema, beats)
    if is_new:
        yield f"create table if not exists {full} (id int primary key, beat timestamp(6) not null)", "CREATE", beats
    if is_new or not _has_row(connection, full):
        yield f"insert ignore into {full} values (1, now(6))", "INSERT", beats


def _exists(connection: Any, schema: str, table: str) -> bool:
    """Whether it is there, as far as we may see."""
    statement = "select 1 from information_schema.tables where table_schema = %s and table_name = %s"
    return bool(fetched(connection, statement, (schema, table)))


def _has_row(connection: Any, table: str) -> bool:
    """Whether the heartbeat's row is there; if it cannot be read, that is told as a right that is lacking."""
    try:
        return bool(fetched(connection, f"select 1 from {table} where id = 1"))
    except pymysql.MySQLError as error:
        return error.args[0] in _DENIED


def _granted(connection: Any, connector: Connector) -> list[str]:
    """What the user has, with the roles that are on. (MariaDB tells of those unasked.)"""
    statement = "show grants"
    if connector.kind == "mysql":
        role = str(fetched(connection, "select current_role()")[0][0])
        statement = "show grants" if role == "NONE" else f"show grants for current_user() using {role}"
    return [str(row[0]) for row in fetched(connection, statement)]


def _quoted_user(connection: Any) -> str:
    user, _, host = str(fetched(connection, "select current_user()")[0][0]).rpartition("@")
    return f"'{user}'@'{host}'"
