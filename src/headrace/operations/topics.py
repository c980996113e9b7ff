"""Topics: what there is, how large it is, where it begins and ends, and what is set."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.operations.cluster import REQUEST_TIMEOUT_S, Cluster, Partition, PartitionOffsets
from headrace.operations.question import ask, brokers

if TYPE_CHECKING:
    from confluent_kafka.admin import TopicDescription

__all__ = ["Disk", "all_topics", "described_topic", "disk_of", "is_internal", "settings_of"]

_LOG_DIRS, _LOG_DIRS_VERSION = 35, 4


@dataclass
class Disk:
    """How large partitions are, and how much room there is where they lie; empty where brokers cannot be asked."""

    sizes: dict[Partition, int] = field(default_factory=dict)
    total: int | None = None
    free: int | None = None


def disk_of(cluster: Cluster) -> Disk:
    """The sizes of all partitions, and the room of all brokers together."""
    disk = Disk()
    for connection, _ in brokers(cluster):
        with contextlib.suppress(OSError, EOFError):
            for folder in ask(connection, _LOG_DIRS, _LOG_DIRS_VERSION, {"topics": None}).results:
                for topic in folder.topics:
                    for one in topic.partitions:
                        disk.sizes[topic.name, one.partition_index] = one.partition_size
                if folder.total_bytes >= 0:
                    disk.total = (disk.total or 0) + folder.total_bytes
                    disk.free = (disk.free or 0) + folder.usable_bytes
    return disk


def all_topics(cluster: Cluster, offsets: Mapping[Partition, PartitionOffsets] | None = None) -> list[dict[str, Any]]:
    """Every topic, with its partitions and how many offsets it holds."""
    topics = cluster.describe(cluster.topic_names())
    if offsets is None:
        offsets = cluster.offsets((found.name, one.id) for found in topics for one in found.partitions)
    held = {place: bound.end - bound.start for place, bound in offsets.items()}
    return [
        {
            "name": found.name,
            "partitions": len(found.partitions),
            "records": sum(held.get((found.name, one.id), 0) for one in found.partitions),
            "internal": is_internal(found),
        }
        for found in topics
    ]


def described_topic(cluster: Cluster, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A topic's name, id and kind, and where each of its partitions begins and ends."""
    found = cluster.describe([name])[0]
    offsets = cluster.offsets((name, partition.id) for partition in found.partitions)
    partitions = [
        {
            "partition": partition.id,
            "leader": partition.leader.id if partition.leader else None,
            "start": offsets[name, partition.id].start,
            "end": offsets[name, partition.id].end,
            "records": offsets[name, partition.id].end - offsets[name, partition.id].start,
        }
        for partition in sorted(found.partitions, key=lambda partition: int(partition.id))
    ]
    return {"name": name, "id": str(found.topic_id), "internal": is_internal(found)}, partitions


def is_internal(found: TopicDescription) -> bool:
    """Whether the server keeps it for itself."""
    return bool(found.is_internal) or found.name.startswith("__")


def settings_of(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """The settings of a topic and where they come from; secret values are not told."""
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, name)
    asked = cluster.admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
    entries = cluster.answer(asked[resource], f"the settings of topic {name!r} could not be read")
    sources = {
        ConfigSource.DYNAMIC_TOPIC_CONFIG.value: "topic",
        ConfigSource.DEFAULT_CONFIG.value: "default",
        ConfigSource.STATIC_BROKER_CONFIG.value: "server",
        ConfigSource.DYNAMIC_BROKER_CONFIG.value: "server",
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value: "server",
    }
    return [
        {"name": entry.name, "value": entry.value, "source": sources.get(int(entry.source), "unknown")}
        for entry in sorted(entries.values(), key=lambda entry: str(entry.name))
    ]
