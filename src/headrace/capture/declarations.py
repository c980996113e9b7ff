"""What an app says of a captured table, as frozen data: which table of which database, and how it is read at first.

``Postgres``, ``MariaDB``, ``MySQL`` and ``SQLite`` name one table. ``Outbox`` says which columns of such a table are
events. ``Captured`` is a source under the name that it has in the app, which is also its topic: what the engine gets.
A password is in ``dsn`` and nowhere else: not in ``repr``, ``server`` or an error.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from headrace.errors import InvalidDeclaration

__all__ = ["Captured", "DatabaseSource", "MariaDB", "MySQL", "Outbox", "Postgres", "SQLite", "Snapshot", "Source"]

_BEFORE_THE_HOST = re.compile(r"(://[^/\s:@]*:).*@")
_SECRET_OPTION = re.compile(r"((?:password|passwd|secret|token)\s*=\s*)[^&;\s]*", re.IGNORECASE)
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1", "0:0:0:0:0:0:0:1")


class Snapshot(StrEnum):
    """What happens with the rows that are there when the capture of a table begins."""

    INITIAL = "initial"
    """They are read first."""
    NEVER = "never"
    """Only changes from now on are captured; ``headrace capture snapshot`` may read the rows later."""


@dataclass(frozen=True, slots=True)
class Source:
    """One table of a database."""

    kind: ClassVar[str] = ""

    @property
    def server(self) -> str:
        """Which database it is, without a password: sources with the same one share a connector."""
        raise NotImplementedError

    @property
    def table_name(self) -> str:
        """The table, as the database names it."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, repr=False)
class DatabaseSource(Source):
    """A table of a database server, by address: ``scheme://user:password@host:port/database``."""

    dsn: str
    table: str
    snapshot: str = field(default=Snapshot.INITIAL, kw_only=True)

    schemes: ClassVar[tuple[str, ...]] = ()
    default_port: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _ensure_snapshot(self)
        parts = self._parts
        if parts.scheme not in self.schemes:
            raise InvalidDeclaration(
                f"{type(self).__name__} cannot read the address {self.address!r}.",
                hint=f'write it like "{self.schemes[0]}://user:password@host:{self.default_port}/database"',
            )
        if _SECRET_OPTION.search(parts.query):
            raise InvalidDeclaration(
                f"the address {self.address!r} has a password among its options.",
                hint=f'write it before the host: "{self.schemes[0]}://user:password@{self.host}:{self.port}/database"',
            )
        if not self.database:
            raise InvalidDeclaration(
                f"the address {self.address!r} names no database.",
                hint=f'end it with the database: "{self.schemes[0]}://{self.host}:{self.port}/shop"',
            )
        if not self.table.strip() or self.table.count(".") > 1:
            raise InvalidDeclaration(
                f"{self.table!r} is not the name of a table.", hint=f'write it like table="{self._example}"'
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r}, table={self.table!r})"

    @property
    def _parts(self) -> SplitResult:
        return urlsplit(self.dsn)

    @property
    def _example(self) -> str:
        return "customers"

    @property
    def host(self) -> str:
        """The server's host."""
        return self._parts.hostname or "localhost"

    @property
    def port(self) -> int:
        """The server's port."""
        return self._parts.port or self.default_port

    @property
    def database(self) -> str:
        """The database on the server."""
        return unquote(self._parts.path.strip("/"))

    @property
    def user(self) -> str:
        """Who connects; the user of this process if the address does not say."""
        return unquote(self._parts.username or "") or os.environ.get("USER", "root")

    @property
    def password(self) -> str:
        """The password; empty if the address has none."""
        return unquote(self._parts.password or "")

    @property
    def options(self) -> dict[str, str]:
        """What follows the ``?`` of the address."""
        return dict(parse_qsl(self._parts.query))

    @property
    def address(self) -> str:
        """The address with ``***`` for the password."""
        return _SECRET_OPTION.sub(r"\1***", _BEFORE_THE_HOST.sub(r"\1***@", self.dsn))

    @property
    def server(self) -> str:
        """Which database it is: ``postgres://host:port/database``. This machine has one name, however it is written."""
        host = "localhost" if self.host in _THIS_MACHINE else self.host
        return f"{self.kind}://{host}:{self.port}/{self.database}"


class Postgres(DatabaseSource):
    """A PostgreSQL table: ``hr.Postgres("postgresql://user:password@host/shop", table="public.customers")``."""

    __slots__ = ()
    kind = "postgres"
    schemes: ClassVar[tuple[str, ...]] = ("postgresql", "postgres")
    default_port = 5432

    @property
    def _example(self) -> str:
        return "public.customers"

    @property
    def schema(self) -> str:
        """The table's schema."""
        return self.table.rpartition(".")[0] or "public"

    @property
    def table_name(self) -> str:
        """``schema.table``."""
        return f"{self.schema}.{self.table.rpartition('.')[2]}"


class MariaDB(DatabaseSource):
    """A MariaDB table: ``hr.MariaDB("mariadb://user:password@host/shop", table="customers")``."""

    __slots__ = ()
    kind = "mariadb"
    schemes: ClassVar[tuple[str, ...]] = ("mariadb", "mysql")
    default_port = 3306

    @property
    def table_name(self) -> str:
        """``database.table``."""
        return f"{self.table.rpartition('.')[0] or self.database}.{self.table.rpartition('.')[2]}"


class MySQL(MariaDB):
    """A MySQL table: ``hr.MySQL("mysql://user:password@host/shop", table="customers")``."""

    __slots__ = ()
    kind = "mysql"
    schemes = ("mysql",)


@dataclass(frozen=True, slots=True)
class SQLite(Source):
    """A table of an SQLite file: ``hr.SQLite("shop.sqlite", table="customers")``. Triggers note its changes."""

    path: str | os.PathLike[str]
    table: str
    snapshot: str = field(default=Snapshot.INITIAL, kw_only=True)

    kind: ClassVar[str] = "sqlite"

    def __post_init__(self) -> None:
        _ensure_snapshot(self)
        if not self.table.strip():
            raise InvalidDeclaration(
                f"{self.table!r} is not the name of a table.", hint='write it like table="customers"'
            )

    @property
    def server(self) -> str:
        """Which file it is: ``sqlite:/path``."""
        return f"sqlite:{Path(self.path).resolve()}"

    @property
    def table_name(self) -> str:
        """The table."""
        return self.table


@dataclass(frozen=True, slots=True)
class Outbox:
    """Which columns of an outbox table are what: each row that is inserted becomes one event.

    The key of the event is ``key``, its value ``payload``; ``id``, ``type`` and ``aggregate`` travel as headers, as do
    the columns in ``headers``. Changes other than inserts are no events.
    """

    source: Source
    id: str = "id"
    aggregate: str = "aggregatetype"
    key: str = "aggregateid"
    type: str = "type"
    payload: str = "payload"
    headers: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that the table must have."""
        return tuple(dict.fromkeys((self.id, self.aggregate, self.key, self.type, self.payload, *self.headers)))


@dataclass(frozen=True, slots=True)
class Captured:
    """A captured table under its name in the app, which is also its topic."""

    name: str
    source: Source
    key: tuple[str, ...] = ()
    """The columns that tell rows apart; empty: the primary key. Another key needs whole rows in the database's log."""
    history: bool = False
    """Whether the topic keeps every version, not only the latest of a key."""
    outbox: Outbox | None = None

    @property
    def topic(self) -> str:
        """Where its changes lie."""
        return self.name


def _ensure_snapshot(source: DatabaseSource | SQLite) -> None:
    if source.snapshot not in list(Snapshot):
        raise InvalidDeclaration(
            f"snapshot={source.snapshot!r} is not known.",
            hint='say snapshot="initial" (the rows that are there are read first) or snapshot="never"',
        )
