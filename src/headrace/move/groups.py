"""Groups: where each one is, on the source; and set there on the target. Offsets are the same on both.

Of a share group it is the offset before which all is settled that moves. Records after it that were settled one by one
are handed out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from headrace.errors import HeadraceError
from headrace.feed.cluster import REQUEST_TIMEOUT_S, Cluster, raised
from headrace.move.connection import GROUP, Brokers, Connection, check

__all__ = ["Group", "groups_of", "set_group"]

_LIST_GROUPS, _LIST_VERSION = 16, 5
_DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION = 32, 4
_ALTER_CONFIGS, _ALTER_CONFIGS_VERSION = 44, 1
_SHARE_OFFSETS, _SHARE_OFFSETS_VERSION = 90, 0
_ALTER_SHARE_OFFSETS, _ALTER_SHARE_VERSION = 91, 0
_GROUP_RESOURCE = 32
_SET = 0
_OWN = 8
"""Where a setting is from: the group itself."""
_OURS = "headrace."

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Group:
    """A group: its kind (classic, consumer, share), and of each partition its offset and what is said with it."""

    name: str
    kind: str
    state: str
    offsets: Mapping[Place, tuple[int, str]]
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        """Whether somebody is in it."""
        return self.state not in ("Empty", "Dead", "")

    @property
    def is_to_be_set(self) -> bool:
        """Whether it has anything that moves."""
        return bool(self.offsets or self.config)

    @property
    def is_share(self) -> bool:
        """Whether it is a queue."""
        return self.kind == "share"


def groups_of(source: Cluster, brokers: Brokers, topics: set[str]) -> list[Group]:
    """All groups, by name, with their offsets of these topics."""
    found = []
    for connection in brokers.all():
        told = connection.call(_LIST_GROUPS, _LIST_VERSION, {"states_filter": [], "types_filter": []})
        check("the groups could not be listed", told.error_code)
        for one in told.groups:
            kind = one.group_type.lower()
            read = _share_offsets(connection, one.group_id) if kind == "share" else _offsets(source, one.group_id)
            offsets = {place: offset for place, offset in read.items() if place[0] in topics}
            found.append(Group(one.group_id, kind, one.group_state, offsets, _config(connection, one.group_id)))
    return sorted(found, key=lambda group: group.name)


def set_group(target: Cluster, brokers: Brokers, group: Group) -> None:
    """Have a group of the target be where it was on the source; a coordinator that is loading is waited for."""
    brokers.patiently(lambda: _set_group(target, brokers, group))


def _set_group(target: Cluster, brokers: Brokers, group: Group) -> None:
    known = {name: value for name, value in group.config.items() if not name.startswith(_OURS)}
    if known:
        _set_config(brokers, group.name, known)
    if group.is_share:
        _set_share_offsets(brokers, group)
    elif group.offsets:
        _set_offsets(target, group)


def _offsets(source: Cluster, group: str) -> dict[Place, tuple[int, str]]:
    asked = source.admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_TIMEOUT_S
    )
    try:
        found = asked[group].result(REQUEST_TIMEOUT_S + 5).topic_partitions
    except KafkaException as error:
        raise raised(error.args[0], f"the offsets of group {group!r} could not be read", source.bootstrap) from None
    return {(one.topic, one.partition): (one.offset, one.metadata or "") for one in found if one.offset >= 0}


def _set_offsets(target: Cluster, group: Group) -> None:
    wanted = [TopicPartition(*place, offset, metadata) for place, (offset, metadata) in group.offsets.items()]
    asked = target.admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group.name, wanted)], request_timeout=REQUEST_TIMEOUT_S
    )
    doing = f"the offsets of group {group.name!r} could not be set on the target"
    try:
        found = asked[group.name].result(REQUEST_TIMEOUT_S + 5)
    except KafkaException as error:
        raise raised(error.args[0], doing, target.bootstrap) from None
    for one in found.topic_partitions:
        if one.error is not None:
            raise raised(one.error, doing, target.bootstrap)


def _share_offsets(connection: Connection, group: str) -> dict[Place, tuple[int, str]]:
    asked = {"groups": [{"group_id": group, "topics": None}]}
    [found] = connection.call(_SHARE_OFFSETS, _SHARE_OFFSETS_VERSION, asked).groups
    check(f"the offsets of share group {group!r} could not be read", found.error_code, found.error_message)
    return {
        (topic.topic_name, partition.partition_index): (partition.start_offset, "")
        for topic in found.topics
        for partition in topic.partitions
        if partition.start_offset >= 0
    }


def _set_share_offsets(brokers: Brokers, group: Group) -> None:
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, partition), (offset, _) in group.offsets.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "start_offset": offset})
    if not topics:
        return
    asked = {
        "group_id": group.name,
        "topics": [{"topic_name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
    told = brokers.coordinator(GROUP, group.name).call(_ALTER_SHARE_OFFSETS, _ALTER_SHARE_VERSION, asked)
    doing = f"the offsets of share group {group.name!r} could not be set on the target"
    check(doing, told.error_code, told.error_message)
    for topic in told.responses:
        for partition in topic.partitions:
            check(doing, partition.error_code, partition.error_message)


def _config(connection: Connection, group: str) -> dict[str, str]:
    """The settings that a group has of its own."""
    resource = {"resource_type": _GROUP_RESOURCE, "resource_name": group, "configuration_keys": None}
    asked = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    [found] = connection.call(_DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION, asked).results
    check(f"the settings of group {group!r} could not be read", found.error_code, found.error_message)
    return {one.name: one.value or "" for one in found.configs if one.config_source == _OWN}


def _set_config(brokers: Brokers, group: str, config: Mapping[str, str]) -> None:
    configs: list[dict[str, Any]] = [
        {"name": name, "config_operation": _SET, "value": value} for name, value in config.items()
    ]
    resource = {"resource_type": _GROUP_RESOURCE, "resource_name": group, "configs": configs}
    asked = {"resources": [resource], "validate_only": False}
    [told] = brokers.any().call(_ALTER_CONFIGS, _ALTER_CONFIGS_VERSION, asked).responses
    if told.error_code:
        names = ", ".join(config)
        raise HeadraceError(
            f"the settings of group {group!r} could not be set on the target.",
            detail=f"{told.error_message or told.error_code} ({names})",
        )
