"""Work that several processes share: a consumer group whose assignment says which parts of it are this process's.

The topic ``headrace.parts`` has no records; its partitions stand for parts of the work. Nothing is read and no offset
is committed: the group is there for its members. Every member has about as many parts as the others, and which ones
changes with every member that comes or goes. Whoever is replaced may learn of it late, so what is done with a part
must be fenced elsewhere: what this process was told last holds until it is told something else.

A process that is started again under the same instance id has its parts back at once, and nobody else notices. One that
stays away loses them after ``SESSION_S``.
"""

from __future__ import annotations

import logging
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from headrace.feed.cluster import Cluster, comes_back
from headrace.feed.topics import ensure_topic

__all__ = ["PARTS", "PARTS_TOPIC", "SESSION_S", "VIEWS_GROUPS", "Membership"]

PARTS_TOPIC = "headrace.parts"
VIEWS_GROUPS = "headrace.views."
"""How the names of groups begin whose members share the views in one store."""
PARTS = 24
"""Divided evenly by most small numbers of processes."""
SESSION_S = 6
_POLL_WITHIN_S = 120
_OF_THE_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
"""What a broker says that has just started: it says nothing of the group."""

_logger = logging.getLogger(__name__)


class Membership:
    """This process in a group. One thread uses it, and polls it often."""

    def __init__(self, cluster: Cluster, group: str, instance: str | None = None) -> None:
        """ServerAway if the topic cannot be made now."""
        self.group = group
        self.trouble: str | None = None
        """Why it is no member, or may not be one much longer: what the group said last against it."""
        self._cluster = cluster
        self._instance = instance
        self._parts: frozenset[int] = frozenset()
        ensure_topic(cluster, PARTS_TOPIC, PARTS, {})
        cluster.partitions(PARTS_TOPIC)
        self._consumer = self._joined()

    @property
    def parts(self) -> frozenset[int]:
        """The parts of the work that are this process's, as it was told last."""
        return self._parts

    def poll(self) -> None:
        """Take in what the group's coordinator says; returns at once."""
        message = self._consumer.poll(0)
        error = message.error() if message is not None else None
        if error is None:
            return
        if error.code() == KafkaError._FATAL or error.fatal():
            _logger.warning("group %s: another process has our instance id (%s); we go on without", self.group, error)
            self._instance = None
            self._consumer.close()
            self._consumer = self._joined()
        elif not comes_back(error) and error.code() not in _OF_THE_TOPIC:
            self._say(f"group {self.group!r} does not take this process: {error.str()}")

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            _logger.warning("%s", trouble)
        self.trouble = trouble

    def close(self) -> None:
        """Leave; under an instance id the parts wait for us until the session ends."""
        self._consumer.close()

    def _joined(self) -> Consumer:
        settings: dict[str, Any] = {
            "group_id": self.group,
            "enable_auto_commit": False,
            "partition_assignment_strategy": "roundrobin",
            "session_timeout_ms": SESSION_S * 1000,
            "heartbeat_interval_ms": 1000,
            "max_poll_interval_ms": _POLL_WITHIN_S * 1000,
            "topic_metadata_refresh_interval_ms": 5000,
        }
        if self._instance is not None:
            settings["group_instance_id"] = self._instance
        consumer = Consumer(self._cluster.config(**settings))
        consumer.subscribe([PARTS_TOPIC], on_assign=self._assigned, on_revoke=_ignored, on_lost=_ignored)
        return consumer

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._parts, self.trouble = frozenset(one.partition for one in partitions), None
        consumer.assign([])  # there is nothing to fetch
        _logger.info("group %s: %d of %d parts are ours", self.group, len(self._parts), PARTS)


def _ignored(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Until we are told what is ours, we go on with what was."""
