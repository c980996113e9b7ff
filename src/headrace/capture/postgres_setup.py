"""Setting PostgreSQL up for capture: what stands in the way, each with its cure, and what is made there and taken away.

Everything that we may make is made; what we may not is told, as the statement that somebody else has to run. A trigger
is made under a lock that waits for the transactions that write to its table, and holds up the writers that come after:
we wait for it only so long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import psycopg

from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured, Postgres
from headrace.capture.postgres import (
    Connection,
    create_signals,
    error_line,
    open_database,
    own_schema,
    quoted,
)
from headrace.capture.postgres_tables import table_problems
from headrace.capture.postgres_truncate import left_behind, right_problems, trigger_statements, unused_functions
from headrace.capture.problems import Problem, refused

__all__ = ["drop", "prepare", "problems"]

LOCK_PATIENCE = "5s"


def problems(connector: Connector) -> list[Problem]:
    """Everything that stands in the way, each with the statement that cures it. Raises if nobody can be asked."""
    with _at_work(connector) as connection:
        found = list(_server_problems(connection, connector))
        for table in connector.tables:
            found += table_problems(connection, table, _user(connector))
        if not found:
            found += _setup_problems(connection, connector)
    return found


def prepare(connector: Connector) -> str:
    """Make what capture needs in the database and is not there. Returns the schema of the signal table."""
    with _at_work(connector) as connection:
        for statement in _setup(connection, connector):
            try:
                connection.execute(statement.encode())
            except psycopg.Error as error:
                raise refused(connector.server, [_failed(connector, statement, error)]) from None
        _tidy(connection, connector)
        return own_schema(connection, connector)


def drop(connector: Connector, *, everything: bool = True) -> list[str]:
    """Take away the slot, and (everything) publication, triggers and our tables. Returns what was dropped."""
    done = []
    with _at_work(connector) as connection:
        schema = own_schema(connection, connector)
        if connection.execute("select 1 from pg_replication_slots where slot_name = %s", [connector.slot]).fetchone():
            _drop_slot(connection, connector.slot)
            done.append(f"replication slot {connector.slot}")
        if not everything:
            return done
        statements = {f"publication {connector.slot}": f"drop publication if exists {quoted(connector.slot)}"}
        statements |= left_behind(connection, connector.slot)
        for name in (connector.signal_table, connector.heartbeat_table):
            statements[f"table {schema}.{name}"] = f"drop table if exists {quoted(schema)}.{quoted(name)}"
        done += _dropped(connection, statements)
        return done + _dropped(connection, unused_functions(connection))


@contextmanager
def _at_work(connector: Connector) -> Iterator[Connection]:
    with open_database(_source(connector)) as connection:
        connection.execute(f"set lock_timeout = '{LOCK_PATIENCE}'".encode())
        yield connection


def _tidy(connection: Connection, connector: Connector) -> None:
    """Drop the triggers of tables that were taken out of the app, as far as we may. ``drop`` tells what stays."""
    wanted = [_postgres(table) for table in connector.tables if table.outbox is None]
    _dropped(connection, left_behind(connection, connector.slot, wanted))
    _dropped(connection, unused_functions(connection))


def _dropped(connection: Connection, statements: Mapping[str, str]) -> list[str]:
    done = []
    for what, statement in statements.items():
        try:
            connection.execute(statement.encode())
            done.append(what)
        except psycopg.Error as error:
            done.append(f"not {what}: {error_line(error)}")
    return done


def _drop_slot(connection: Connection, name: str, attempts: int = 50) -> None:
    for attempt in range(attempts):
        connection.execute(
            "select pg_terminate_backend(active_pid), pg_sleep(0.1) from pg_replication_slots"
            " where slot_name = %s and active",
            [name],
        )
        try:
            connection.execute("select pg_drop_replication_slot(%s)", [name])
            return
        except psycopg.errors.ObjectInUse:
            if attempt == attempts - 1:
                raise
        except psycopg.errors.UndefinedObject:
            return


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
    missing = _setup(connection, connector)
    yield from _trial_problems(connection, connector, missing)
    for captured in connector.tables:
        if captured.outbox is None:
            yield from right_problems(connection, _postgres(captured))
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


def _trial_problems(connection: Connection, connector: Connector, missing: Sequence[str]) -> Iterator[Problem]:
    """What fails of all that is to be made: it is tried, and undone."""
    statement = ""
    try:
        with connection.transaction(force_rollback=True):
            for statement in missing:
                connection.execute(statement.encode())
    except psycopg.Error as error:
        for one in missing if isinstance(error, psycopg.errors.InsufficientPrivilege) else [statement]:
            yield _failed(connector, one, error)


def _failed(connector: Connector, statement: str, error: psycopg.Error) -> Problem:
    """Raises if the database went away."""
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return _locked(statement)
    if (error.sqlstate or "08")[:2] in ("08", "57"):  # the connection, or the server, is gone
        raise error
    how = "may not" if isinstance(error, psycopg.errors.InsufficientPrivilege) else "cannot"
    return Problem(f"{_user(connector)} {how} set up capture ({error_line(error)}).", f"{statement};")


def _locked(statement: str) -> Problem:
    return Problem(
        f"a transaction that is under way holds what `{statement.partition(' for each ')[0]}` needs; it was not waited "
        f"for longer than {LOCK_PATIENCE}, as all writers would have had to wait too.",
        "try again when it has ended; SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start;  -- "
        "shows the oldest",
    )


def _setup(connection: Connection, connector: Connector) -> list[str]:
    """The statements that make what is missing, in order."""
    schema = own_schema(connection, connector)
    signals = f"{quoted(schema)}.{quoted(connector.signal_table)}"
    beats = f"{quoted(schema)}.{quoted(connector.heartbeat_table)}"
    todo = []
    if not _exists(connection, schema, connector.signal_table):
        todo.append(create_signals(signals))
    if not _exists(connection, schema, connector.heartbeat_table):
        todo.append(f"create table {beats} (id int primary key, beat timestamptz not null)")
        todo.append(f"insert into {beats} values (1, now()) on conflict do nothing")
    wanted = {
        (schema, connector.signal_table),
        (schema, connector.heartbeat_table),
        *((_postgres(table).schema, _postgres(table).table_name.partition(".")[2]) for table in connector.tables),
    }
    todo += _publication(connection, connector.slot, wanted)  # first: triggers of tables in none are left behind
    for table in connector.tables:
        if table.outbox is None:
            todo += trigger_statements(connection, _postgres(table))
    return todo


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
