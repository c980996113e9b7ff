"""PostgreSQL as a source: what a table is, what stands in the way of capturing it, and what capture needs there.

In the database there are, per app: a replication slot and a publication of one name, a signal table (which tells the
connector to read a table again), a heartbeat table (whose one row moves the position on while all else is quiet), and
on every captured table a trigger that turns TRUNCATE into deletes, the only form in which a compacted topic tells it.
``postgres_setup`` makes them, and takes them away.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from headrace.capture.columns import TableColumn, TableLook
from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured, Postgres
from headrace.capture.health import Health
from headrace.capture.problems import Refusing, Unreachable, refusing
from headrace.errors import HeadraceError, NotFound

__all__ = [
    "Connection",
    "Slot",
    "create_signals",
    "error_line",
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
    "slot_of",
]

CONNECT_PATIENCE_S = 10
_AWAY = ("08", "40", "53", "55", "57")
"""Classes of errors that say nothing of what was asked: the connection, memory and disk, somebody's intervention."""
_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "application_name", "options")
Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Slot:
    """How a replication slot is doing."""

    exists: bool
    active: bool = False
    lost: bool = False
    """Whether the server has thrown away what the slot still needed."""
    lag_bytes: int = 0
    """How far the position that was acknowledged is behind the end of the database's log."""
    retained_bytes: int = 0
    """How much of its log the database keeps for the slot."""
    confirmed_lsn: int = 0
    current_lsn: int = 0
    keep_bytes: int = -1
    """The server's ``max_slot_wal_keep_size``; -1: it keeps everything until its disk is full."""


@contextmanager
def open_database(source: Postgres) -> Iterator[Connection]:
    """A connection that commits each statement. Failing, the error says what to do."""
    options: dict[str, Any] = {name: value for name, value in source.options.items() if name in _OPTIONS}
    try:
        connection = psycopg.connect(
            host=source.host,
            port=source.port,
            dbname=source.database,
            user=source.user,
            password=source.password or None,
            connect_timeout=CONNECT_PATIENCE_S,
            autocommit=True,
            **options,
        )
    except psycopg.Error as error:
        raise _unreachable(source, error) from None
    try:
        with connection:
            yield connection
    except psycopg.Error as error:
        raise _failed(source, error) from None


def look(source: Postgres) -> TableLook:
    """A table's columns and primary key."""
    with open_database(source) as connection:
        found = look_at(connection, source)
    if found is None:
        raise NotFound(f"there is no table {source.table_name!r} in {source.server}.", hint=_similar(source))
    return found


def signal(connector: Connector, schema: str, kind: str, data: dict[str, Any]) -> str:
    """Tell the connector something, through its table. Returns the signal's id."""
    chosen = f"headrace-{uuid.uuid4()}"
    table = f"{quoted(schema)}.{quoted(connector.signal_table)}"
    statement = f"insert into {table} (id, type, data) values (%s, %s, %s)"
    with open_database(_source(connector)) as connection:
        try:
            connection.execute(statement.encode(), [chosen, kind, json.dumps(data)])
        except psycopg.errors.UndefinedTable:
            raise Refusing(
                f"{connector.server} has no table {table} any more, by which its capture is told what to read.",
                hint=f"start the app again, or: {create_signals(table)}; "
                f"ALTER PUBLICATION {quoted(connector.slot)} ADD TABLE {table};",
            ) from None
        except psycopg.errors.InsufficientPrivilege as error:
            raise _denied(connector, error, f"SELECT, INSERT, DELETE ON {table}") from None
    return chosen


def create_signals(table: str) -> str:
    """The statement that makes the table of signals."""
    return f"create table {table} (id varchar(64) primary key, type varchar(32) not null, data text)"


def health(connector: Connector, offset: Mapping[str, Any] | None) -> Health:
    """How the database's side is doing; whether the stored position may be gone on from."""
    with open_database(_source(connector)) as connection:
        beat = _beat(connection, connector)
        slot = slot_of(connection, connector)
    return Health(
        slot.lag_bytes,
        slot.retained_bytes,
        slot.confirmed_lsn if slot.exists else None,
        slot.keep_bytes,
        refusal=_refusal(connector, slot, offset),
        beat=beat,
        end=slot.current_lsn,
    )


def position(connector: Connector) -> int:
    """Where the server's log ends now."""
    with open_database(_source(connector)) as connection:
        return slot_of(connection, connector).current_lsn


def has_reached(offset: Mapping[str, Any], end: int) -> bool:
    """Whether a stored position is at that end or behind it. Heartbeats move it on."""
    return not offset.get("snapshot") and int(offset.get("lsn") or 0) >= end


def _beat(connection: Connection, connector: Connector) -> int | None:
    """The heartbeat, in microseconds; None before it is set up."""
    table = f"{quoted(own_schema(connection, connector))}.{quoted(connector.heartbeat_table)}"
    found = connection.execute("select to_regclass(%s)", [table]).fetchone()
    if found is None or found[0] is None:
        return None
    statement = f"select (extract(epoch from beat) * 1000000)::bigint from {table}"
    try:
        row = connection.execute(statement.encode()).fetchone()
    except psycopg.errors.InsufficientPrivilege as error:
        raise _denied(connector, error, f"SELECT, UPDATE ON {table}") from None
    return None if row is None else int(row[0])


def _refusal(connector: Connector, slot: Slot, offset: Mapping[str, Any] | None) -> str | None:
    if offset is None or "lsn" not in offset:
        return None
    lsn = int(offset["lsn"])
    is_change = bool(offset.get("lsn_events_processed"))  # then it begins there, and the log must go on behind it
    if slot.current_lsn < lsn or (is_change and slot.current_lsn == lsn):
        return (
            f"the database's log ends at {_lsn(slot.current_lsn)}, before {_lsn(lsn)}, which was captured already: "
            "this is an older copy of the database (a failover, or a backup that was restored)"
        )
    if not slot.exists:
        return f"the replication slot {connector.slot} is gone: changes since {_lsn(lsn)} may be lost"
    if slot.lost:
        return (
            f"the server has thrown away what the replication slot {connector.slot} still needed "
            "(max_slot_wal_keep_size): changes are lost"
        )
    return None


def _lsn(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def slot_of(connection: Connection, connector: Connector) -> Slot:
    """How the connector's slot is doing."""
    current = connection.execute("select pg_current_wal_lsn() - '0/0'").fetchone()
    keep = connection.execute(
        "select setting::bigint from pg_settings where name = 'max_slot_wal_keep_size'"
    ).fetchone()
    row = connection.execute(
        "select active, wal_status = 'lost', confirmed_flush_lsn - '0/0', restart_lsn - '0/0'"
        " from pg_replication_slots where slot_name = %s",
        [connector.slot],
    ).fetchone()
    now = int(current[0]) if current else 0
    limit = int(keep[0]) << 20 if keep and int(keep[0]) >= 0 else -1
    if row is None:
        return Slot(False, current_lsn=now, keep_bytes=limit)
    confirmed = int(row[2]) if row[2] is not None else now
    restart = int(row[3]) if row[3] is not None else now  # one that was given up has none
    return Slot(True, bool(row[0]), bool(row[1]), max(0, now - confirmed), max(0, now - restart), confirmed, now, limit)


def look_at(connection: Connection, source: Postgres) -> TableLook | None:
    """What a table is, over a connection; None if there is none."""
    rows = connection.execute(
        "select a.attname, case t.typtype when 'd' then format_type(t.typbasetype, t.typtypmod)"
        " else format_type(a.atttypid, a.atttypmod) end, not a.attnotnull"
        " from pg_attribute a join pg_type t on t.oid = a.atttypid"
        " where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped"
        " order by a.attnum",
        [quoted_table(source)],
    ).fetchall()
    if not rows:
        return None
    key = connection.execute(
        "select a.attname from pg_index i, unnest(i.indkey) with ordinality k(attnum, place), pg_attribute a"
        " where i.indrelid = to_regclass(%s) and i.indisprimary and a.attrelid = i.indrelid and a.attnum = k.attnum"
        " order by k.place",
        [quoted_table(source)],
    ).fetchall()
    columns = tuple(TableColumn(str(name), str(native), bool(nullable)) for name, native, nullable in rows)
    return TableLook(columns, tuple(str(name) for (name,) in key))


def own_schema(connection: Connection, connector: Connector) -> str:
    """Where our tables are already, or the schema of the first table."""
    row = connection.execute(
        "select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where c.relname = %s and c.relkind = 'r' order by 1",
        [connector.signal_table],
    ).fetchone()
    return str(row[0]) if row else _source(connector).schema


def _failed(source: Postgres, error: psycopg.Error) -> HeadraceError:
    """What went wrong as it was asked."""
    is_away = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    if is_away and (error.sqlstate or _AWAY[0])[:2] in _AWAY:
        return _unreachable(source, error)
    return refusing(source.server, source.user, error_line(error))


def _denied(connector: Connector, error: psycopg.Error, rights: str) -> Refusing:
    user = connector.source.user
    return Refusing(
        f"{connector.server} does not let user {user!r} do what capture needs.",
        detail=error_line(error),
        hint=f"GRANT {rights} TO {quoted(user)};",
    )


def _unreachable(source: Postgres, error: psycopg.Error) -> Unreachable:
    text = error_line(error)
    if "password authentication failed" in text or "no password supplied" in text:
        return Unreachable(
            f"{source.server} refuses the password of user {source.user!r}.",
            hint=f"put the right one into the address, or: ALTER ROLE {quoted(source.user)} PASSWORD '...';",
        )
    if "does not exist" in text and "database" in text:
        return Unreachable(f"{source.server} does not exist.", hint=f"CREATE DATABASE {quoted(source.database)};")
    if "does not exist" in text and "role" in text:
        return Unreachable(
            f"{source.server} has no user {source.user!r}.",
            hint=f"CREATE ROLE {quoted(source.user)} LOGIN REPLICATION PASSWORD '...';",
        )
    if "pg_hba.conf" in text:
        return Unreachable(
            f"{source.server} does not let user {source.user!r} in from here.",
            detail=text,
            hint=f"add to pg_hba.conf: host {source.database} {source.user} ADDRESS scram-sha-256",
        )
    return Unreachable(
        f"{source.server} cannot be reached.", detail=text, hint="is the server up, and are host and port right?"
    )


def _similar(source: Postgres) -> str:
    with open_database(source) as connection:
        rows = connection.execute(
            "select schemaname || '.' || tablename from pg_tables where schemaname not in"
            " ('pg_catalog', 'information_schema') order by 1 limit 20"
        ).fetchall()
    return f"there are: {', '.join(str(name) for (name,) in rows) or 'none'}"


def _source(connector: Connector) -> Postgres:
    return _postgres(connector.tables[0])


def _postgres(table: Captured) -> Postgres:
    assert isinstance(table.source, Postgres)
    return table.source


def quoted_table(source: Postgres) -> str:
    """``"schema"."table"``."""
    schema, _, table = source.table_name.partition(".")
    return f"{quoted(schema)}.{quoted(table)}"


def quoted(text: str) -> str:
    """A name as SQL takes it."""
    return sql.Identifier(text).as_string(None)


def error_line(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split())
