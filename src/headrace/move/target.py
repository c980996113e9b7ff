"""Topics on the target: made for the copy, with settings under which nothing of it is changed or deleted, and given
their own settings when the copy is done."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from headrace.errors import AlreadyExists, ServerAway, UnknownTopic
from headrace.feed.cluster import REQUEST_TIMEOUT_S, Cluster, raised
from headrace.move.notes import COPYING, VERIFIED, Notes
from headrace.move.plan import TopicPlan

__all__ = ["TargetTopics"]

_FOREVER = str(2**63 - 1)
_MEANWHILE: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": _FOREVER,
    "message.timestamp.before.max.ms": _FOREVER,
    "max.message.bytes": str(64 << 20),
}
"""What a topic is set to while it is copied: every record is taken as it is, and none goes."""


class TargetTopics:
    """The topics of a plan on the target."""

    def __init__(self, cluster: Cluster, notes: Notes, replication: int = -1) -> None:
        self._cluster = cluster
        self._notes = notes
        self._replication = replication

    def taken(self, topics: tuple[TopicPlan, ...]) -> list[str]:
        """The names that topics of the target have which a move has not made."""
        return [topic.name for topic in topics if not self._is_free(topic)]

    def ensure_free(self, topics: tuple[TopicPlan, ...]) -> None:
        """Raise if the target has topics of these names that a move has not made."""
        taken = self.taken(topics)
        if taken:
            raise AlreadyExists(
                f"the target has topics of the same names already: {', '.join(taken)}.",
                detail="a move keeps every record's offset, so its topics must be new",
                hint="move to a cluster without them, or delete them there if nobody needs them",
            )

    def prepare(self, topic: TopicPlan) -> str:
        """Have a topic that can be copied into; its id."""
        found = self._id(topic.name)
        if found is None:
            self._notes.note(topic.name, None, COPYING)
            self._make(topic)
            found = self._made_id(topic.name)
            self._notes.note(topic.name, found, COPYING)
        elif not self.is_verified(topic):
            self._set(topic.name, _MEANWHILE, [])
        return found

    def is_verified(self, topic: TopicPlan) -> bool:
        """Whether an earlier attempt has copied and compared all that is there now."""
        noted = self._notes.of(topic.name)
        ends = {str(part.partition): part.end for part in topic.parts}
        return noted is not None and noted["state"] == VERIFIED and noted["ends"] == ends

    def settle(self, topic: TopicPlan) -> None:
        """Give a topic the settings that it has on the source."""
        self._set(topic.name, topic.config, [name for name in _MEANWHILE if name not in topic.config])

    def _is_free(self, topic: TopicPlan) -> bool:
        found, noted = self._id(topic.name), self._notes.of(topic.name)
        if found is None:
            return True
        if len(self._cluster.partitions(topic.name)) != len(topic.parts):
            return False
        empty = all(end == 0 for _, end in self._cluster.bounds(topic.name).values())
        return noted is not None and (noted["topic_id"] == found or (noted["topic_id"] is None and empty))

    def _id(self, name: str) -> str | None:
        try:
            self._cluster.partitions(name)
        except UnknownTopic:
            return None
        return self._cluster.topic_id(name)

    def _made_id(self, name: str) -> str:
        """The id of a topic that was just made: not every broker knows it at once."""
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while (found := self._id(name)) is None:
            if time.monotonic() > deadline:
                raise ServerAway(f"topic {name!r} was made on the target, but is not there.")
            time.sleep(0.05)
        return found

    def _make(self, topic: TopicPlan) -> None:
        copies, settings = self._cluster.brokers.copies(self._replication)
        new = NewTopic(topic.name, len(topic.parts), copies, config={**settings, **topic.config, **_MEANWHILE})
        asked = self._cluster.admin.create_topics([new], request_timeout=REQUEST_TIMEOUT_S)
        self._answer(asked[topic.name], f"topic {topic.name!r} could not be made on the target")

    def _set(self, name: str, config: Mapping[str, str], unset: list[str]) -> None:
        if not config and not unset:
            return
        changes = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
        ] + [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
        asked = self._cluster.admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
        self._answer(asked[resource], f"the settings of topic {name!r} could not be set on the target")

    def _answer(self, future: Any, doing: str) -> None:
        try:
            future.result(REQUEST_TIMEOUT_S + 5)
        except KafkaException as error:
            raise raised(error.args[0], doing, self._cluster.bootstrap) from None
        except TimeoutError:
            raise ServerAway(f"{doing}: {self._cluster.bootstrap} did not answer.") from None
