"""The kinds of databases behind one interface: what is asked of, and done to, the database of a connector."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.capture.connectors import Connector
from headrace.capture.health import Health
from headrace.capture.problems import Problem
from headrace.errors import HeadraceError
from headrace.feed.catalog import Catalog
from headrace.feed.cluster import Cluster

if TYPE_CHECKING:
    from headrace.capture.truncations import Truncations

__all__ = [
    "condition",
    "drop",
    "has_reached",
    "health",
    "position",
    "prepare",
    "problems",
    "signal",
    "truncations",
]

_HOMES = {
    "postgres": ("postgres", "postgres_setup"),
    "mariadb": ("mariadb", "mariadb_setup"),
    "mysql": ("mariadb", "mariadb_setup"),
}


def problems(connector: Connector) -> list[Problem]:
    """Everything that stands in the way of capturing its tables."""
    found: list[Problem] = _module(connector, 1).problems(connector)
    return found


def prepare(connector: Connector) -> str:
    """Make what capture needs in the database; returns the schema of our own tables."""
    return str(_module(connector, 1).prepare(connector))


def drop(connector: Connector, *, everything: bool = True) -> list[str]:
    """Take away what capture left in the database; returns what that was."""
    found: list[str] = _module(connector, 1).drop(connector, everything=everything)
    return found


def signal(connector: Connector, schema: str, kind: str, data: dict[str, Any]) -> str:
    """Tell the running connector something."""
    return str(_module(connector).signal(connector, schema, kind, data))


def health(connector: Connector, offset: Mapping[str, Any] | None) -> Health:
    """How the database's side is doing."""
    found = _module(connector).health(connector, offset)
    assert isinstance(found, Health)
    return found


def condition(connector: Connector, key: Mapping[str, Any]) -> str:
    """A row of a key, as the database's SQL says it. Both kinds of databases take quoted numbers."""
    is_postgres = connector.kind == "postgres"
    mark = '"' if is_postgres else "`"

    def literal(value: Any) -> str:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        text = text if is_postgres else text.replace("\\", "\\\\")
        return "'" + text.replace("'", "''") + "'"

    names = {name: mark + name.replace(mark, 2 * mark) + mark for name in key}
    return " and ".join(f"{names[name]} = {literal(value)}" for name, value in key.items())


def position(connector: Connector) -> Any:
    """Where the database's log ends now."""
    return _module(connector).position(connector)


def has_reached(connector: Connector, offset: Mapping[str, Any], end: Any) -> bool:
    """Whether a stored position is at or behind an end of the database's log that was asked for before."""
    return bool(_module(connector).has_reached(offset, end))


def truncations(connector: Connector, cluster: Cluster, catalog: Catalog) -> Truncations | None:
    """What notices TRUNCATE, in databases where a trigger cannot."""
    if connector.kind == "postgres":
        return None
    found: Truncations = _import("truncations", connector).Truncations(cluster, catalog, connector)
    return found


def _module(connector: Connector, place: int = 0) -> Any:
    return _import(_HOMES[connector.kind][place], connector)


def _import(name: str, connector: Connector) -> Any:
    try:
        return import_module(f"headrace.capture.{name}")
    except ModuleNotFoundError as missing:
        raise HeadraceError(
            f"capturing from {connector.kind} needs the Python package {missing.name!r}.",
            hint="pip install 'headrace[capture]'",
        ) from None
