"""Setting PostgreSQL up for capture: what stands in the way, each with its cure, and what is made there.

Everything that we may make is made; what we may not is told, as the statement that somebody else has to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import psycopg

from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured, Postgres
from headrace.capture.postgres import (
    TRIGGER,
    Connection,
    error_line,
    open_database,
    own_schema,
    quoted,
    quoted_table,
)
from headrace.capture.postgres_tables import table_problems
from headrace.capture.problems import Problem, refused

__all__ = ["prepare", "problems", "truncate_cure"]


def problems(connector: Connector) -> list[Problem]:
    """Everything that stands in the way, each with the statement that cures it. Raises if nobody can be asked."""
    source = _source(connector)
    with open_database(source) as connection:
        found = list(_server_problems(connection, connector))
        for table in connector.tables:
            found += table_problems(connection, table, _user(connector))
        if not found:
            found += _setup_problems(connection, connector)
    return found


def prepare(connector: Connector) -> str:
    """Make what capture needs in the database and is not there. Returns the schema of the signal table."""
    with open_database(_source(connector)) as connection:
        for statement in _setup(connection, connector):
            try:
                connection.execute(statement.encode())
            except psycopg.errors.InsufficientPrivilege as error:
                problem = Problem(f"{_user(connector)} may not: {error_line(error)}.", f"{statement};")
                raise refused(connector.server, [problem]) from None
        return own_schema(connection, connector)


def truncate_cure(source: Postgres) -> list[str]:
    """The statements that make TRUNCATE of a table visible as deletes."""
    function = f"{quoted(source.schema)}.{quoted(TRIGGER)}"
    return [
        f"create or replace function {function}() returns trigger language plpgsql as $$ begin "
        "execute format('delete from %I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME); return null; end $$",
        f"create trigger {TRIGGER} before truncate on {quoted_table(source)} "
        f"for each statement execute function {function}()",
    ]


def _server_problems(connection: Connection, connector: Connector) -> Iterator[Problem]:
    level, senders, slots, version = _settings(
        connection,
        "wal_level",
        "max_wal_senders",
        "max_replication_slots",
        "server_version_num",
    )
    if int(version) < 130000:
        yield Problem(f"the server is too old ({version}).", "PostgreSQL 13 or newer is needed")
    if level != "logical":
        yield Problem(
            f"wal_level is {level}, so the server's log does not say which rows changed.",
            "ALTER SYSTEM SET wal_level = 'logical';  -- then restart the server",
        )
    if int(senders) == 0:
        yield Problem("max_wal_senders is 0.", "ALTER SYSTEM SET max_wal_senders = 10;  -- then restart the server")
    has_slot = connection.execute(
        "select 1 from pg_replication_slots where slot_name = %s", [connector.slot]
    ).fetchone()
    used = connection.execute("select count(*) from pg_replication_slots").fetchone()
    if has_slot is None and used is not None and used[0] >= int(slots):
        yield Problem(
            f"all {slots} replication slots are taken.",
            f"ALTER SYSTEM SET max_replication_slots = {int(slots) + 10};  -- then restart the server",
        )
    role = connection.execute("select rolsuper, rolreplication from pg_roles where rolname = current_user").fetchone()
    if role is not None and not any(role) and not _is_member(connection, "rds_replication"):
        yield Problem(
            f"{_user(connector)} may not replicate.", f"ALTER ROLE {quoted(connector.source.user)} REPLICATION;"
        )


def _setup_problems(connection: Connection, connector: Connector) -> Iterator[Problem]:
    """What is still to be made and we may not make, and what we may not do with what somebody else has made."""
    missing, denied = _setup(connection, connector), None
    try:
        with connection.transaction(force_rollback=True):
            for statement in missing:
                connection.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege as error:
        denied = error_line(error)
    if denied is not None:
        for statement in missing:
            yield Problem(f"{_user(connector)} may not set up capture ({denied}).", f"{statement};")
    schema = own_schema(connection, connector)
    needed = {connector.signal_table: ("SELECT", "INSERT", "DELETE"), connector.heartbeat_table: ("SELECT", "UPDATE")}
    for table, rights in needed.items():
        name = f"{quoted(schema)}.{quoted(table)}"
        for right in rights if _exists(connection, schema, table) else ():
            row = connection.execute("select has_table_privilege(%s, %s)", [name, right]).fetchone()
            if row is not None and not row[0]:
                cure = f"GRANT {', '.join(rights)} ON {name} TO {quoted(connector.source.user)};"
                yield Problem(f"{_user(connector)} may not {right.lower()} in {schema}.{table}.", cure)
                break


def _setup(connection: Connection, connector: Connector) -> list[str]:
    """The statements that make what is missing, in order."""
    schema = own_schema(connection, connector)
    signals = f"{quoted(schema)}.{quoted(connector.signal_table)}"
    beats = f"{quoted(schema)}.{quoted(connector.heartbeat_table)}"
    todo = []
    if not _exists(connection, schema, connector.signal_table):
        todo.append(f"create table {signals} (id varchar(64) primary key, type varchar(32) not null, data text)")
    if not _exists(connection, schema, connector.heartbeat_table):
        todo.append(f"create table {beats} (id int primary key, beat timestamptz not null)")
        todo.append(f"insert into {beats} values (1, now()) on conflict do nothing")
    for table in connector.tables:
        if table.outbox is None and not _has_trigger(connection, _postgres(table)):
            todo += truncate_cure(_postgres(table))
    wanted = {
        (schema, connector.signal_table),
        (schema, connector.heartbeat_table),
        *((_postgres(table).schema, _postgres(table).table_name.partition(".")[2]) for table in connector.tables),
    }
    return [*todo, *_publication(connection, connector.slot, wanted)]


def _publication(connection: Connection, name: str, wanted: Iterable[tuple[str, str]]) -> list[str]:
    chosen = set(wanted)
    if connection.execute("select 1 from pg_publication where pubname = %s", [name]).fetchone() is None:
        return [
            f"create publication {quoted(name)} for table {_tables(chosen)} with (publish_via_partition_root = true)"
        ]
    rows = connection.execute("select schemaname, tablename from pg_publication_tables where pubname = %s", [name])
    published = {(str(schema), str(table)) for schema, table in rows.fetchall()}
    if published == chosen:
        return []
    return [f"alter publication {quoted(name)} set table {_tables(chosen)}"]


def _exists(connection: Connection, schema: str, table: str) -> bool:
    row = connection.execute("select to_regclass(%s)", [f"{quoted(schema)}.{quoted(table)}"]).fetchone()
    return row is not None and row[0] is not None


def _has_trigger(connection: Connection, source: Postgres) -> bool:
    row = connection.execute(
        "select 1 from pg_trigger where tgrelid = to_regclass(%s) and tgname = %s", [quoted_table(source), TRIGGER]
    ).fetchone()
    return row is not None


def _is_member(connection: Connection, role: str) -> bool:
    row = connection.execute(
        "select pg_has_role(current_user, oid, 'member') from pg_roles where rolname = %s", [role]
    ).fetchone()
    return row is not None and bool(row[0])


def _settings(connection: Connection, *names: str) -> Sequence[str]:
    rows = connection.execute("select name, setting from pg_settings where name = any(%s)", [list(names)]).fetchall()
    found = {str(name): str(setting) for name, setting in rows}
    return [found.get(name, "0") for name in names]


def _user(connector: Connector) -> str:
    """Who connects."""
    return f"user {connector.source.user!r}"


def _tables(names: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{quoted(schema)}.{quoted(table)}" for schema, table in sorted(names))


def _source(connector: Connector) -> Postgres:
    return _postgres(connector.tables[0])


def _postgres(table: Captured) -> Postgres:
    assert isinstance(table.source, Postgres)
    return table.source
