"""The topics of captured tables keep what was declared: the latest version of each row, or every version.

A topic may be there already, made under another declaration or by somebody else. Where keeping more is asked for,
its settings are changed, for that loses nothing; where keeping less is, the topic stays as it is and that is told. A
topic that lets records go after a while would lose rows of the table: it is refused. So is one of several partitions
for a table of a database server: the old and the new key of a change would be apart, with no order between them, and
what we write there ourselves (the rest of a torn change, deletions) might be in another partition than the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headrace.capture.connectors import Connector, topic_config
from headrace.capture.declarations import Captured, DatabaseSource
from headrace.errors import HeadraceError
from headrace.feed.cluster import Cluster
from headrace.feed.topics import change_topic, ensure_topic, settings_of_topic

__all__ = ["LIMITS", "ensure_table_topic", "ensure_topics", "lets_go", "versions_lost"]

LIMITS = ("retention.ms", "retention.bytes")


def ensure_topics(cluster: Cluster, connectors: Iterable[Connector], told: Callable[[str], None]) -> None:
    """Make all topics that connectors write to and that are not there."""
    for connector in connectors:
        for table in connector.tables:
            ensure_table_topic(cluster, table, told)
        ensure_topic(cluster, connector.heartbeat_topic)
        if connector.kind != "postgres":
            ensure_topic(cluster, connector.schema_topic, 1, {"cleanup.policy": "delete", "retention.ms": "-1"})


def ensure_table_topic(cluster: Cluster, table: Captured, told: Callable[[str], None]) -> None:
    """Make the topic of a captured table, or see to it that the one that is there keeps what the table needs."""
    wanted = topic_config(table)
    ensure_topic(cluster, table.topic, 1, wanted)
    if table.outbox is not None:
        return
    if isinstance(table.source, DatabaseSource):
        _ensure_one_partition(cluster, table)
    found = settings_of_topic(cluster, table.topic)
    if table.history and (versions_lost(found) or lets_go(found)):
        _keep_all(cluster, table, wanted, "was compacted" if versions_lost(found) else "let records go after a while")
        told(
            f"table {table.name}: its topic {'was compacted' if versions_lost(found) else 'let records go'} until now "
            f"and keeps every version from now on ({_listed(wanted)}). Versions from before may be gone: they do not "
            "come back"
        )
    elif not table.history and lets_go(found):
        raise HeadraceError(
            f"topic {table.topic!r} lets records go after a while ({_listed(_said(found))}), so rows of table "
            f"{table.name!r} would vanish from it.",
            hint=f"`{_command(table, wanted)}`, or give the table another name in the app",
        )
    elif not table.history and not versions_lost(found):
        told(
            f"table {table.name}: its topic keeps every version, as with history=True, and is left so. To keep the "
            f"latest only: `{_command(table, wanted)}`; older versions are lost then"
        )


def _ensure_one_partition(cluster: Cluster, table: Captured) -> None:
    count = len(cluster.partitions(table.topic))
    if count > 1:
        raise HeadraceError(
            f"topic {table.topic!r} has {count} partitions, not 1.",
            detail=f"the changes of table {table.name!r} are one sequence: where a key changes, its old and its new "
            "row must not be apart",
            hint=f"give the table another name in the app, or, if nobody needs what is in the topic: "
            f"`headrace topic delete {table.topic}`",
        )


def versions_lost(settings: Mapping[str, str]) -> bool:
    """Whether a topic with these settings keeps only the latest version of a key."""
    return "compact" in settings.get("cleanup.policy", "")


def lets_go(settings: Mapping[str, str]) -> bool:
    """Whether a topic with these settings loses even the latest version of a key, by time or size."""
    limits = [settings.get(name, "-1") for name in LIMITS]
    return "delete" in settings.get("cleanup.policy", "") and any(int(limit) >= 0 for limit in limits)


def _keep_all(cluster: Cluster, table: Captured, wanted: Mapping[str, str], why: str) -> None:
    try:
        change_topic(cluster, table.topic, wanted)
    except HeadraceError as refused:
        raise HeadraceError(
            f"table {table.name!r} has history=True, but its topic {why}, and that could not be changed.",
            detail=str(refused),
            hint=f"`{_command(table, wanted)}`",
        ) from None


def _said(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: settings[name] for name in ("cleanup.policy", *LIMITS) if name in settings}


def _listed(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _command(table: Captured, settings: Mapping[str, str]) -> str:
    return f"headrace topic alter {table.topic} " + " ".join(
        f"--set {name}={value}" for name, value in settings.items()
    )
