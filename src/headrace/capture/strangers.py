"""Connectors of databases that an app no longer captures: what is left in such a database, and how it goes away."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["left_behind"]


def left_behind(name: str, config: Mapping[str, str]) -> str:
    """What is told of such a connector, given its configuration: nobody knows the password any more."""
    place = f"{config.get('database.hostname')}:{config.get('database.port')}"
    slot = config.get("slot.name")
    if slot is None:
        return f"connector {name} belongs to a database of {place} that the app no longer captures: it is stopped"
    publication = config.get("publication.name", slot).replace('"', '""')
    return (
        f"connector {name} belongs to a database that the app no longer captures: it is stopped, and its replication "
        f"slot holds the database's log until somebody runs, in database {config.get('database.dbname')} of {place}: "
        f"select pg_drop_replication_slot('{slot}'); drop publication \"{publication}\";"
    )
