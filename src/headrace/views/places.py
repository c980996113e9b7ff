"""Where views are kept: in files of a folder, or in a database by its address."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import InvalidConfig

if TYPE_CHECKING:
    from headrace.views.postgres.address import PostgresAddress
    from headrace.views.store import Stores

__all__ = ["ensure_usable", "stores_at"]

_POSTGRES = ("postgresql://", "postgres://")


def stores_at(address: str | None, folder: Path) -> Stores:
    """The stores of this address; without one, SQLite files in the folder."""
    if address is None:
        from headrace.views.sqlite_reading import SqliteStores

        return SqliteStores(folder)
    from headrace.views.postgres.store import PostgresStores

    return PostgresStores(_postgres(address))


def ensure_usable(address: str) -> str:
    """Before anything starts: that views can be kept there. The address as it may be shown, without a password."""
    postgres = _postgres(address)
    postgres.ensure_usable()
    return str(postgres)


def _postgres(address: str) -> PostgresAddress:
    if not address.startswith(_POSTGRES):
        scheme, separator, _ = address.partition("://")  # without one, who knows where a password begins
        raise InvalidConfig(
            f"views cannot be kept in {scheme}." if separator else "the address of views cannot be read.",
            hint="say postgresql://user:password@host:5432/database, or nothing for SQLite files in the data folder",
        )
    if importlib.util.find_spec("psycopg") is None:
        raise InvalidConfig("views in PostgreSQL need psycopg.", hint="pip install 'headrace[postgres]'")
    from headrace.views.postgres.address import PostgresAddress

    return PostgresAddress(address)
