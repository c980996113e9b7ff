"""Ending a capture for good: what it left in the database goes, and its position; the topics stay unless asked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.capture import databases
from headrace.capture.connectors import connectors_of
from headrace.capture.declarations import Captured, SQLite
from headrace.capture.problems import DATABASE_TROUBLE
from headrace.capture.run import locked
from headrace.capture.settings import CaptureSettings
from headrace.feed.catalog import Catalog, read_catalog
from headrace.feed.cluster import Cluster
from headrace.feed.topics import delete_topics

__all__ = ["remove"]


def remove(app: str, tables: Sequence[Captured], settings: CaptureSettings, *, topics: bool = False) -> list[str]:
    """Drop slots, publications, triggers and our tables, and forget all positions. Returns what was done."""
    done = []
    with locked(settings, app):
        for connector in connectors_of(app, tables):
            try:
                done += [f"dropped {what}" for what in databases.drop(connector)]
            except DATABASE_TROUBLE as trouble:
                done.append(f"{connector.server} did not do it, so its replication slot may still be there: {trouble}")
        for table in tables:
            if isinstance(table.source, SQLite):
                from headrace.capture.sqlite import SQLiteFile

                file = SQLiteFile(table.source)
                try:
                    file.remove(app, table.name)
                finally:
                    file.close()
                done.append(f"dropped the triggers on {table.source.table_name}")
        cluster = Cluster(settings.bootstrap, settings.client)
        ours = [name for name in cluster.admin.list_topics(timeout=10.0).topics if _is_ours(name, app)]
        gone = [*ours, *([table.topic for table in tables] if topics else [])]
        delete_topics(cluster, gone)
        done += [f"deleted topic {name}" for name in sorted(gone)]
        _forget(cluster, app)
        (settings.folder / "capture" / app / "notifications.log").unlink(missing_ok=True)
    return done


def _is_ours(topic: str, app: str) -> bool:
    """The worker's topics, heartbeats, schemas; and those that connectors name after themselves, unasked."""
    connector = rf"headrace\.{re.escape(app)}\.[0-9a-f]{{8}}(\..*)?"
    return topic.startswith(f"headrace.connect.{app}.") or re.fullmatch(connector, topic) is not None


def _forget(cluster: Cluster, app: str) -> None:
    catalog = Catalog(cluster)
    for kind in (
        "capture",
        "capture-new",
        "capture-torn",
        "capture-sweep",
        "capture-paused",
        "capture-truncate",
        "capture-beat",
        "capture-rows",
        "capture-command",
    ):
        for name in read_catalog(cluster, kind):
            if name.startswith(f"{app}/"):
                catalog.put(f"{kind}/{name}", None)
    catalog.flush()
