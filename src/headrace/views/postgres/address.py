"""Which PostgreSQL database keeps views, and how it is reached. No text made here has its password.

An address is libpq's: ``postgresql://user:password@host:port/database?sslmode=require``; what it leaves out comes from
``PGPASSWORD``, ``~/.pgpass`` and the like. Several hosts may be given: the first that answers is used.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import conninfo

from headrace.errors import HeadraceError, InvalidConfig, StoreAway
from headrace.views.statement import quoted

__all__ = ["Connection", "PostgresAddress", "end_in", "execute", "fetch"]

OLDEST = 15
"""The first version whose unique indexes can say that null equals null."""

Connection = psycopg.Connection[tuple[Any, ...]]

_PATIENCE = {
    "connect_timeout": 5,
    "tcp_user_timeout": 20_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
"""A server that vanished without a word is noticed within half a minute."""
_SESSION = (
    "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '30s'; SET tcp_keepalives_idle = 5;"
    " SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;"
    " SET default_transaction_isolation = 'read committed'; SET timezone = 'UTC';"
    " SET datestyle = 'ISO'; SET extra_float_digits = 1; SET bytea_output = 'hex'; SET search_path = ''"
)
"""A process that stops in the middle of a transaction, or vanishes with its machine, holds up others for so long and no
longer. Who waits for a lock and then reads has to see what was committed meanwhile, whatever the database's default."""


class PostgresAddress:
    """A database of a PostgreSQL server."""

    def __init__(self, text: str) -> None:
        try:
            self._said: dict[str, Any] = dict(conninfo.conninfo_to_dict(text))
        except (psycopg.Error, UnicodeError):
            self._said = {}  # the library's own words would quote the address, and a password with it
        if not self._said and text.partition("://")[2]:
            raise InvalidConfig(
                "the address of views cannot be read.",
                hint="write it like postgresql://user:password@host:5432/database, special characters as %40",
            )

    @property
    def user(self) -> str:
        """Who we are there."""
        return str(self._said.get("user") or os.environ.get("PGUSER") or os.environ.get("USER") or "")

    @property
    def database(self) -> str:
        """Its database."""
        return str(self._said.get("dbname") or os.environ.get("PGDATABASE") or self.user)

    def __str__(self) -> str:
        host = self._said.get("host") or os.environ.get("PGHOST") or "localhost"
        port = self._said.get("port") or os.environ.get("PGPORT") or "5432"
        return f"postgresql://{self.user}@{host}:{port}/{self.database}"

    def __repr__(self) -> str:
        return f"PostgresAddress({str(self)!r})"

    def connect(self) -> Connection:
        """A connection whose statements commit by themselves; StoreAway says why there is none."""
        try:
            connection: Connection = psycopg.connect(
                **{"application_name": "headrace views", **_PATIENCE, **self._said, "client_encoding": "UTF8"},
                autocommit=True,
                cursor_factory=psycopg.RawCursor,
            )
        except psycopg.Error as error:
            raise self._unreachable(error) from None
        try:
            with self.told():
                execute(connection, _SESSION)
        except BaseException:
            connection.close()
            raise
        return connection

    def ensure_usable(self) -> None:
        """Before anything starts: that the server answers, and can keep views."""
        with contextlib.closing(self.connect()) as connection, self.told():
            [(version, encoding, replica, temporary)] = fetch(
                connection,
                "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),"
                " pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,"
                " has_database_privilege(current_database(), 'TEMP')",
            )
        if version < OLDEST * 10_000:
            raise InvalidConfig(f"{self} is PostgreSQL {version // 10_000}: views need {OLDEST} or later.")
        if encoding != "UTF8":
            raise InvalidConfig(f"the database of {self} is encoded in {encoding}: views need UTF8.")
        if replica:
            raise InvalidConfig(f"{self} is read-only.", hint="give the address of the primary server")
        if not temporary:
            raise InvalidConfig(
                f"{self}: user {self.user!r} may not make temporary tables, which many rows at once and SQL need.",
                hint=f"GRANT TEMPORARY ON DATABASE {quoted(self.database)} TO {quoted(self.user)};",
            )

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Whatever the server refuses in this block is told as StoreAway."""
        try:
            yield
        except psycopg.Error as error:
            text = self._scrubbed(error)
            if isinstance(error, psycopg.errors.InsufficientPrivilege):
                raise StoreAway(f"{self} refuses user {self.user!r}: {text}") from None
            if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
                raise StoreAway(f"{self} is away: {text}") from None
            raise StoreAway(f"{self} refuses what was asked: {text}") from None

    def _unreachable(self, error: psycopg.Error) -> HeadraceError:
        text = self._scrubbed(error)
        if "password authentication failed" in text or "no password supplied" in text:
            return StoreAway(
                f"{self} refuses the password of user {self.user!r}.",
                hint="put the right one into the address, or into PGPASSWORD or ~/.pgpass",
            )
        if "does not exist" in text and "database" in text:
            return StoreAway(f"{self}: there is no such database.", hint=f'CREATE DATABASE "{self.database}";')
        if "does not exist" in text and "role" in text:
            return StoreAway(f"{self}: there is no user {self.user!r}.", hint=f'CREATE ROLE "{self.user}" LOGIN;')
        if "pg_hba.conf" in text:
            return StoreAway(f"{self} does not let user {self.user!r} in from here.", detail=text)
        return StoreAway(f"{self} does not answer.", detail=text, hint="is the server up, and is the address right?")

    def _scrubbed(self, error: psycopg.Error) -> str:
        """The first line of what the server or its library said, without the password should it be there."""
        lines = (error.diag.message_primary or str(error)).splitlines()
        text = lines[0] if lines else type(error).__name__
        password = str(self._said.get("password") or "")
        return text.replace(password, "***") if password and password != self.user else text


def execute(connection: Connection, statement: str, values: Sequence[Any] | None = None) -> int:
    """Run a statement (its parameters are $1, $2, ...); how many rows it touched."""
    return connection.execute(statement.encode(), values).rowcount


def end_in(connection: Connection, seconds: float) -> None:
    """Until the transaction's end no statement takes longer."""
    execute(connection, f"SET LOCAL statement_timeout = {max(1, int(seconds * 1000))}")


def fetch(connection: Connection, statement: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
    """The rows of a statement (its parameters are $1, $2, ...)."""
    return connection.execute(statement.encode(), values).fetchall()
