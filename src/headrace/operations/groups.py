"""Groups of all kinds: who is in them, how far behind they are, and moving them to another place."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, InvalidRequest, NotFound, NotNow, UnknownTopic
from headrace.operations.cluster import REQUEST_TIMEOUT_S, Cluster, Partition
from headrace.operations.positions import Position
from headrace.operations.share_groups import ShareGroup, share_groups

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription

__all__ = [
    "Lag",
    "about_group",
    "all_groups",
    "existing_group",
    "group_names",
    "lags_of",
    "members_of",
    "move_group",
]

AGE_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind in a partition: in records, and by the age of the oldest record it has not read."""

    group: str
    topic: str
    partition: int
    committed: int
    end: int
    lag: int
    lag_seconds: float | None


def all_groups(cluster: Cluster) -> list[dict[str, Any]]:
    """Groups of all types, with their state and how many members they have."""
    rows = _group_rows(cluster, group_names(cluster))
    rows += [
        {"group": one.name, "type": "share", "state": one.state, "members": len(one.members)}
        for one in share_groups(cluster)
    ]
    return sorted(rows, key=lambda row: str(row["group"]))


def members_of(found: ConsumerGroupDescription | ShareGroup) -> list[dict[str, Any]]:
    """A group's members, with the partitions that they have."""
    if isinstance(found, ShareGroup):
        return found.members
    return [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": [f"{p.topic}[{p.partition}]" for p in sorted(member.assignment.topic_partitions)],
        }
        for member in found.members
    ]


def move_group(
    cluster: Cluster,
    name: str,
    position: Position,
    topics: Sequence[str] | None = None,
    partitions: Sequence[int] | None = None,
    *,
    dry_run: bool = False,
) -> list[dict[str, Any]]:
    """Move a group without members to a position in the topics that it has offsets for, or in those named.

    Gives the offsets before and after. A group that does not exist is made."""
    _ensure_idle(cluster, name)
    before = _committed(cluster, name)
    wanted = topics or sorted({topic for topic, _ in before})
    if not wanted:
        raise InvalidRequest(
            f"group {name!r} has no offsets to move.", hint="name the topics to begin with: --topic TOPIC"
        )
    places = [p for topic in wanted for p in cluster.partitions(topic) if not partitions or p[1] in partitions]
    _ensure_all(wanted, partitions or (), places)
    after = cluster.resolve(position, places)
    if not dry_run:
        _commit(cluster, name, after)
    return [
        {"topic": topic, "partition": index, "before": before.get((topic, index)), "after": after[topic, index]}
        for topic, index in sorted(after)
    ]


def _ensure_all(topics: Sequence[str], partitions: Sequence[int], places: Sequence[Partition]) -> None:
    for index in sorted(set(partitions) - {index for _, index in places}):
        raise UnknownTopic(
            f"no partition {index} in {', '.join(topics)}.",
            hint="`headrace topic describe` shows the partitions a topic has",
        )


def about_group(found: ConsumerGroupDescription | ShareGroup) -> dict[str, Any]:
    """What a group is, without its members."""
    if isinstance(found, ShareGroup):
        about = {"group": found.name, "type": "share", "state": found.state, "assignor": found.assignor}
        return {**about, "coordinator": found.coordinator}
    coordinator = f"{found.coordinator.host}:{found.coordinator.port}" if found.coordinator else None
    about = {"group": found.group_id, "type": _type(found), "state": _state(found)}
    return {**about, "assignor": found.partition_assignor or None, "coordinator": coordinator}


def group_names(cluster: Cluster) -> list[str]:
    """The consumer groups there are, by name."""
    asked = cluster.admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S)
    listed = cluster.answer(asked, "the groups could not be listed")
    return sorted(str(found.group_id) for found in listed.valid)


def _described(cluster: Cluster, names: Sequence[str]) -> list[ConsumerGroupDescription]:
    if not names:
        return []
    asked = cluster.admin.describe_consumer_groups(list(names), request_timeout=REQUEST_TIMEOUT_S)
    return [cluster.answer(asked[name], f"group {name!r} could not be described") for name in names]


def existing_group(cluster: Cluster, name: str) -> ConsumerGroupDescription | ShareGroup:
    """The group of this name, of either kind; NotFound if there is none."""
    if name in group_names(cluster):
        return _described(cluster, [name])[0]
    found = next((group for group in share_groups(cluster) if group.name == name), None)
    if found is None:
        raise NotFound(f"there is no group {name!r}.", hint="`headrace group list` shows the groups there are")
    return found


def _group_rows(cluster: Cluster, names: Sequence[str]) -> list[dict[str, Any]]:
    if not names:
        return []
    asked = cluster.admin.describe_consumer_groups(list(names), request_timeout=REQUEST_TIMEOUT_S)
    rows: list[dict[str, Any]] = []
    for name in names:
        try:
            found = cluster.answer(asked[name], f"group {name!r} could not be described")
        except HeadraceError:
            rows.append({"group": name, "type": None, "state": "damaged", "members": None})
        else:
            rows.append({"group": name, "type": _type(found), "state": _state(found), "members": len(found.members)})
    return rows


def _type(found: ConsumerGroupDescription) -> str:
    return str(found.type.name).lower()


def _state(found: ConsumerGroupDescription) -> str:
    return str(found.state.name).lower().replace("_", " ")


def _ensure_idle(cluster: Cluster, name: str) -> None:
    if name not in group_names(cluster):
        if any(group.name == name for group in share_groups(cluster)):
            raise InvalidRequest(f"group {name!r} is a share group, so it cannot be moved.")
        return
    members = _described(cluster, [name])[0].members
    if members:
        raise NotNow(
            f"group {name!r} has {len(members)} member{'s' * (len(members) != 1)}, so it cannot be moved now.",
            detail="Members: " + ", ".join(f"{member.client_id} at {member.host}" for member in members[:5]),
            hint="stop its consumers first; one that was killed leaves after its session timeout (45 s by default)",
        )


def _committed(cluster: Cluster, name: str) -> dict[Partition, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    wanted = [ConsumerGroupTopicPartitions(name)]
    asked = cluster.admin.list_consumer_group_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S)
    found = cluster.answer(asked[name], f"the offsets of group {name!r} could not be read")
    return {(p.topic, p.partition): p.offset for p in found.topic_partitions if p.offset >= 0}


def _commit(cluster: Cluster, name: str, offsets: dict[Partition, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    places = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
    wanted = [ConsumerGroupTopicPartitions(name, places)]
    asked = cluster.admin.alter_consumer_group_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S)
    done = cluster.answer(asked[name], f"group {name!r} was not moved")
    for place in done.topic_partitions:
        if place.error is not None:
            raise InvalidRequest(f"{place.topic}[{place.partition}] was not moved: {place.error.str()}.")


def lags_of(
    cluster: Cluster, name: str, topics: Sequence[str] | None, offsets: dict[Partition, int] | None = None
) -> list[Lag]:
    """How far a group is behind; ``offsets`` are where it stands, if that is not what it committed."""
    existing = set(cluster.topic_names())
    committed = {
        place: offset
        for place, offset in (_committed(cluster, name) if offsets is None else offsets).items()
        if place[0] in existing and (not topics or place[0] in topics)
    }
    bounds = cluster.offsets(committed)
    unread = {place: max(offset, bounds[place].start) for place, offset in committed.items()}
    behind = {place: offset for place, offset in unread.items() if bounds[place].end > offset}
    ages = _ages_s(cluster, behind)
    return [
        Lag(
            group=name,
            topic=place[0],
            partition=place[1],
            committed=committed[place],
            end=bounds[place].end,
            lag=max(0, bounds[place].end - unread[place]),
            lag_seconds=ages.get(place) if place in behind else 0.0,
        )
        for place in sorted(committed)
    ]


def _ages_s(cluster: Cluster, offsets: dict[Partition, int]) -> dict[Partition, float]:
    """How old the first record at or after each offset is, 0 where none is left: markers of transactions take offsets,
    too. Missing where it could not be read in time."""
    if not offsets:
        return {}
    from confluent_kafka import KafkaError, TopicPartition

    consumer = cluster.consumer(
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        enable_partition_eof=True,
        fetch_message_max_bytes=1000,
    )
    ages: dict[Partition, float] = {}
    try:
        consumer.assign([TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()])
        deadline = time.monotonic() + AGE_PATIENCE_S
        while len(ages) < len(offsets) and time.monotonic() < deadline:
            message: Any = consumer.poll(0.2)
            if message is None:
                continue
            place, error = (message.topic(), message.partition()), message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                ages.setdefault(place, 0.0)
            elif error is None and place not in ages:
                ages[place] = max(0.0, round(time.time() - message.timestamp()[1] / 1000, 3))
                consumer.pause([TopicPartition(*place)])
    finally:
        consumer.close()
    return ages
