"""Queues: share groups, in which consumers settle records one by one."""

from __future__ import annotations

from typing import Any

from headrace.errors import NotFound
from headrace.operations.cluster import REQUEST_TIMEOUT_S, Cluster
from headrace.operations.ranges import messages_in
from headrace.operations.record_json import message_json
from headrace.operations.share_states import Shared, shared_by

__all__ = ["group_settings", "in_flight", "next_records", "parts_of", "queue_parts", "queues_of"]

_IN_FLIGHT = "headrace.in.flight"


def queues_of(cluster: Cluster) -> list[dict[str, Any]]:
    """The groups that share topics, and how many records each has to settle."""
    by_group: dict[str, list[Shared]] = {}
    for one in shared_by(cluster):
        by_group.setdefault(one.group, []).append(one)
    return [
        {
            "group": group,
            "topics": sorted({one.topic for one in parts}),
            "lag": sum(one.lag for one in parts),
            "to_retry": sum(one.retried for one in parts),
            "in_flight": in_flight(cluster, group),
            "dead_letters_waiting": sum(one.waiting_dead for one in parts),
        }
        for group, parts in by_group.items()
    ]


def queue_parts(parts: list[Shared]) -> list[dict[str, Any]]:
    """Where a group is in each partition that it shares."""
    return [
        {
            "topic": one.topic,
            "partition": one.partition,
            "start": one.start,
            "end": one.end,
            "lag": one.lag,
            "to_retry": one.retried,
            "dead_letters_waiting": one.waiting_dead,
        }
        for one in parts
    ]


def next_records(cluster: Cluster, parts: list[Shared], limit: int, *, settled: bool = False) -> list[dict[str, Any]]:
    """The next records of a queue with their state and attempts, not taken; ``settled``: those between, too."""
    by_place = {(one.topic, one.partition): one for one in parts}
    rows: list[dict[str, Any]] = []
    for message in messages_in(cluster, {place: (one.start, one.end) for place, one in by_place.items()}):
        state, attempts = by_place[message.topic(), message.partition()].state_of(message.offset())
        if state == "available" or settled:
            rows.append({"state": state, "attempts": attempts, **message_json(message)})
        if len(rows) == limit:
            break
    return rows


def group_settings(cluster: Cluster, name: str) -> dict[str, str]:
    """What was set on a group itself."""
    from confluent_kafka.admin import ConfigSource

    default = ConfigSource.DEFAULT_CONFIG.value
    return {
        key: str(entry.value)
        for key, entry in sorted(_entries(cluster, name).items())
        if entry.source not in (default, ConfigSource.STATIC_BROKER_CONFIG.value) and entry.value is not None
    }


def in_flight(cluster: Cluster, name: str) -> int | None:
    """How many records the consumers of a queue hold at the moment; None of a broker that does not say."""
    entry = _entries(cluster, name).get(_IN_FLIGHT)
    return None if entry is None else int(entry.value)


def _entries(cluster: Cluster, name: str) -> dict[str, Any]:
    from confluent_kafka.admin import ConfigResource

    resource = ConfigResource(ConfigResource.Type.GROUP, name)
    (asked,) = cluster.admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S).values()
    return cluster.answer(asked, f"the settings of group {name!r} could not be read")


def parts_of(cluster: Cluster, name: str) -> list[Shared]:
    """What a group shares; NotFound if it shares nothing."""
    parts = shared_by(cluster, name)
    if not parts:
        raise NotFound(
            f"no group {name!r} shares a topic.",
            hint="`headrace queue list` shows those that do; a group begins to with its first consumer",
        )
    return parts
