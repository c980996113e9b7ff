"""Where views are kept: in files of a folder, or in a database by its address."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import InvalidConfig

if TYPE_CHECKING:
    from headrace.views.postgres.address import PostgresAddress
    from headrace.views.store import Stores

__all__ = ["apps_at", "ensure_usable", "give", "stores_at"]

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


def apps_at(address: str, log: str, topic_ids: Mapping[str, str]) -> list[str]:
    """The apps whose views of this log are kept there; ``topic_ids``: the topics of the log."""
    from headrace.views.postgres.belonging import apps_of

    return apps_of(_postgres(address), log, topic_ids)


def give(address: str, log: str, other: str, topic_ids: Mapping[str, str]) -> dict[str, int]:
    """The log has moved: its views that are kept there go on with the other one. The apps, and how many views of each
    there are; ``topic_ids``: what the topics are called there."""
    from headrace.views.postgres.belonging import give

    return give(_postgres(address), log, other, topic_ids)


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
