"""What there is to move: topics with their settings, groups with their offsets; and what stands in the way.

Only the source is asked. Settings that only the embedded log knows begin with ``headrace.`` (overflow, archive, the
order of keys in queues, dead letters): the target would not honour them, so they are losses that must be accepted.
Nodes that share views are a group that is not moved: they keep the views up to date, and meet anew on the target.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

from headrace.feed import presence
from headrace.feed.cluster import REQUEST_TIMEOUT_S, Cluster
from headrace.feed.membership import PARTS_TOPIC, VIEWS_GROUPS
from headrace.feed.topics import CATALOG, read_table
from headrace.move.connection import Brokers, check
from headrace.move.copying import Part
from headrace.move.groups import Group, groups_of
from headrace.move.notes import MOVES

__all__ = ["Plan", "TopicPlan", "changes", "make_plan"]

_LIST_TRANSACTIONS, _LIST_VERSION = 66, 0
_OPEN = ["Ongoing", "PrepareCommit", "PrepareAbort"]
_OURS = "headrace."
_ONLY_FOR_TESTS = "internal.segment.bytes"
_HARMLESS = {"headrace.overflow": "buffer"}


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic to be moved: its id here, what of it is moved, and the settings that it has of its own."""

    name: str
    topic_id: str
    parts: tuple[Part, ...]
    config: Mapping[str, str]
    lost: Mapping[str, str]

    @property
    def offsets(self) -> int:
        """How many offsets it has; with gaps, it has fewer records."""
        return sum(part.end - part.start for part in self.parts)

    @property
    def ends(self) -> dict[int, int]:
        """Where its partitions end."""
        return {part.partition: part.end for part in self.parts}


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is to be moved, what is at work on the source, and what the target cannot do."""

    cluster_id: str
    topics: tuple[TopicPlan, ...]
    groups: tuple[Group, ...]
    busy: tuple[str, ...]
    losses: tuple[str, ...]


def make_plan(source: Cluster, brokers: Brokers) -> Plan:
    """Look at everything there is."""
    names = sorted(_names(source))
    topics = tuple(_topic(source, name) for name in names)
    groups = [group for group in groups_of(source, brokers, set(names)) if not group.name.startswith(VIEWS_GROUPS)]
    busy = [*_open_transactions(brokers), *_members(groups), *_at_work(source, names)]
    losses = [f"topic {topic.name}: {name}={value}" for topic in topics for name, value in topic.lost.items()]
    losses += [f"group {group.name}: {name}={value}" for group in groups for name, value in _lost(group.config).items()]
    return Plan(source.id() or "unnamed", topics, tuple(groups), tuple(busy), tuple(losses))


def changes(before: Plan, now: Plan) -> list[str]:
    """What has happened on the source between two looks at it, and what is at work there. Records that retention or
    compaction took are no change: the target has them still."""
    return [*now.busy, *_of_topics(before, now), *_of_groups(before, now)]


def _of_topics(before: Plan, now: Plan) -> list[str]:
    then, there = ({topic.name: topic for topic in plan.topics} for plan in (before, now))
    told = [f"topic {name} was made" for name in sorted(there.keys() - then.keys())]
    told += [f"topic {name} was deleted" for name in sorted(then.keys() - there.keys())]
    for name, old in then.items():
        new = there.get(name, old)
        if new.topic_id != old.topic_id:
            told.append(f"topic {name} was made anew")
        elif new.ends != old.ends:
            told.append(f"records came to {name}")
        if (new.config, new.lost) != (old.config, old.lost):
            told.append(f"settings of topic {name} were changed")
    return told


def _of_groups(before: Plan, now: Plan) -> list[str]:
    then, there = ({group.name: group for group in plan.groups if group.is_to_be_set} for plan in (before, now))
    told = [f"group {name} came to be" for name in sorted(there.keys() - then.keys())]
    told += [f"group {name} went" for name in sorted(then.keys() - there.keys())]
    for name, old in then.items():
        new = there.get(name, old)
        if (new.kind, new.offsets) != (old.kind, old.offsets):
            told.append(f"group {name} committed offsets")
        if new.config != old.config:
            told.append(f"settings of group {name} were changed")
    return told


def _names(source: Cluster) -> list[str]:
    listed = source.admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    return [name for name in listed if not name.startswith("__") and name not in (MOVES, PARTS_TOPIC)]


def _topic(source: Cluster, name: str) -> TopicPlan:
    parts = tuple(Part(name, index, *bounds) for index, bounds in sorted(source.bounds(name).items()))
    resource = ConfigResource(ResourceType.TOPIC, name)
    asked = source.admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
    entries = asked[resource].result(REQUEST_TIMEOUT_S + 5).values()
    own = {str(e.name): str(e.value) for e in entries if int(e.source) != ConfigSource.DEFAULT_CONFIG.value}
    config = {key: value for key, value in own.items() if not key.startswith(_OURS) and key != _ONLY_FOR_TESTS}
    return TopicPlan(name, source.topic_id(name), parts, config, _lost(own))


def _lost(config: Mapping[str, str]) -> dict[str, str]:
    """Settings that do something here and would do nothing there."""
    ours = {name: value for name, value in config.items() if name.startswith(_OURS)}
    return {name: value for name, value in ours.items() if value not in ("", "false", _HARMLESS.get(name))}


def _open_transactions(brokers: Brokers) -> list[str]:
    found = []
    for connection in brokers.all():
        asked = {"state_filters": _OPEN, "producer_id_filters": []}
        told = connection.call(_LIST_TRANSACTIONS, _LIST_VERSION, asked)
        check("the open transactions could not be listed", told.error_code)
        found += [f"transaction {one.transactional_id} is open" for one in told.transaction_states]
    return sorted(found)


def _members(groups: list[Group]) -> list[str]:
    return [f"group {group.name} has members ({group.state.lower()})" for group in groups if group.is_active]


def _at_work(source: Cluster, names: list[str]) -> list[str]:
    """Queries and captures of apps that run."""
    if CATALOG not in names:
        return []
    found = []
    for kind in ("query", "capture"):
        for key, value in sorted(read_table(source, CATALOG, f"{kind}/").items()):
            entry: dict[str, Any] = presence.now(json.loads(value))
            if entry.get("state") not in ("stopped", "failed", presence.GONE):
                found.append(f"{kind} {key.removeprefix(f'{kind}/').replace('/', '.')} is {entry.get('state')}")
    return found
