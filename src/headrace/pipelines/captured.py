"""The columns of captured tables that were declared without a schema: asked of the database when the app first runs.

They are then kept in the catalog (``table/APP/NAME``), so that a column that is added to the database changes no query
until somebody wants it: new columns are told and left out, dropped ones become null, until ``headrace run --rebuild``
takes the columns as they are. While the database is away, an app goes on with the columns that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.capture.columns import spark_type
from headrace.capture.declarations import Source
from headrace.capture.keeping import LIMITS, lets_go, versions_lost
from headrace.capture.lookup import look_up
from headrace.errors import HeadraceError
from headrace.feed.catalog import Catalog, iso_now, read_catalog
from headrace.feed.cluster import Cluster
from headrace.feed.topics import ensure_topic, settings_of_topic
from headrace.pipelines.app import App
from headrace.pipelines.declarations import Query, Stream, TableDeclaration
from headrace.pipelines.schema import Column

__all__ = ["ensure_input_topic", "learn_columns", "topic_settings"]

_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
_EVERY_VERSION = {"cleanup.policy": "delete", **_FOR_EVER}
_LATEST = {"cleanup.policy": "compact"}


def topic_settings(declared: Stream | TableDeclaration) -> dict[str, str]:
    """How the topic of a stream or table is made, if it is not there."""
    if isinstance(declared, TableDeclaration):
        return _EVERY_VERSION if declared.history else _LATEST
    return {}


def ensure_input_topic(cluster: Cluster, declared: Stream | TableDeclaration, told: Callable[[str], None]) -> None:
    """Make the topic of a stream or table if it is not there. One of somebody else's that loses rows is told of."""
    wanted = topic_settings(declared)
    is_captured = isinstance(declared, TableDeclaration) and declared.capture is not None
    ensure_topic(cluster, declared.topic, 1 if is_captured else -1, wanted)
    if isinstance(declared, Stream) or is_captured:
        return
    found = settings_of_topic(cluster, declared.topic)
    kept = wanted if declared.history else _FOR_EVER  # compaction takes records without a key, which may be there
    changes = " ".join(f"--set {name}={value}" for name, value in kept.items())
    command = f"`headrace topic alter {declared.topic} {changes}`"
    if declared.history and (versions_lost(found) or lets_go(found)):
        told(
            f"table {declared.name} has history=True, but its topic does not keep every version: {command} "
            "(versions that are gone do not come back)"
        )
    elif not declared.history and lets_go(found):
        limits = ", ".join(f"{name}={found[name]}" for name in ("cleanup.policy", *LIMITS) if name in found)
        told(
            f"table {declared.name}: its topic lets records go after a while ({limits}), so rows will be missing "
            f"from what is built anew or joins them later: {command} (rows that are gone do not come back)"
        )


def learn_columns(app: App, cluster: Cluster, told: Callable[[str], None], *, rebuild: bool = False) -> None:
    """Complete the declarations of captured tables."""
    unknown = [
        one for one in app if not isinstance(one, Query | Stream) and one.capture and not (one.columns and one.key)
    ]
    if not unknown:
        return
    known = read_catalog(cluster, "table")
    catalog = Catalog(cluster)
    for table in unknown:
        name = f"{app.name}/{table.name}"
        entry = _entry(app, table, known.get(name), told, rebuild=rebuild)
        if entry is not known.get(name):
            catalog.put(f"table/{name}", entry)
        columns = tuple(Column(one["name"], one["type"]) for one in entry["columns"])
        app.learn(table.name, columns, tuple(entry["key"]))
    catalog.flush()


def _entry(
    app: App, table: TableDeclaration, known: Mapping[str, Any] | None, told: Callable[[str], None], *, rebuild: bool
) -> Mapping[str, Any]:
    """What is known of a table: as it was first seen, or as it is now."""
    source = table.capture
    assert source is not None
    if known is not None and known["source"] != _identity(source):
        known = None
    try:
        present = _asked(source)
    except HeadraceError as error:
        if known is None or rebuild:
            raise HeadraceError(
                error.message, detail=" ".join(filter(None, [error.detail, f"({table.place})"])), hint=error.hint
            ) from error
        told(f"table {table.name}: its columns are taken as they were, for its database could not be asked: {error}")
        return known
    if known is None or rebuild:
        return {"app": app.name, "name": table.name, **present, "seen_at": iso_now()}
    for sentence in _differences(known, present):
        told(f"table {table.name}: {sentence}; `headrace run --rebuild` takes the columns as they are")
    return known


def _asked(source: Source) -> dict[str, Any]:
    seen = look_up(source)
    columns = [{"name": one.name, "type": spark_type(source.kind, one.native)} for one in seen.columns]
    return {"source": _identity(source), "key": list(seen.key), "columns": columns}


def _identity(source: Source) -> str:
    return f"{source.server} {source.table_name}"


def _differences(known: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    before, now = ({one["name"]: one["type"] for one in entry["columns"]} for entry in (known, present))
    return [
        *(f"column {name} is new and left out" for name in now if name not in before),
        *(f"column {name} is gone and null" for name in before if name not in now),
        *(
            f"column {name} was {before[name]} and is {kind}, and read as it was"
            for name, kind in now.items()
            if name in before and before[name] != kind
        ),
    ]
