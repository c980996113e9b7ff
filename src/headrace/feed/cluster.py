"""What is asked of the broker itself: partitions, offsets, who it is."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from headrace.errors import HeadraceError, ServerAway, UnknownTopic

__all__ = ["Cluster", "raised"]

REQUEST_TIMEOUT_S = 10.0
_AWAY = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE})

T = TypeVar("T")


class Cluster:
    """A Headrace node or an Apache Kafka cluster, as a client sees it."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str]) -> None:
        self.bootstrap = bootstrap
        self._settings = dict(settings)
        self._admin: AdminClient | None = None

    def config(self, **more: object) -> dict[str, Any]:
        """Settings for a client; names with underscores for dots."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "headrace-feed",
            "log_level": 0,
            "reconnect.backoff.max.ms": 1000,
            **{name.replace("_", "."): value for name, value in more.items()},
            **self._settings,
        }

    @property
    def admin(self) -> AdminClient:
        """The client that asks, made when first used."""
        if self._admin is None:
            self._admin = AdminClient(self.config())
        return self._admin

    def consumer(self) -> Consumer:
        """A consumer of committed records, of a group that never comes to exist."""
        return Consumer(
            self.config(
                group_id=f"headrace-feed-{uuid.uuid4()}",
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                enable_partition_eof=True,
                fetch_wait_max_ms=5,  # a fetch that waits for more holds up the next range
                fetch_queue_backoff_ms=5,
                fetch_error_backoff_ms=100,
                queued_max_messages_kbytes=32 << 10,
                fetch_message_max_bytes=8 << 20,
            )
        )

    def id(self) -> str | None:
        """The cluster's id."""
        try:
            found: str | None = self.admin.list_topics(timeout=REQUEST_TIMEOUT_S).cluster_id
        except KafkaException as error:
            raise raised(error.args[0], "the cluster could not be asked who it is", self.bootstrap) from None
        return found

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic that must exist."""
        asked = self.admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S)
        described = self._answer(asked[topic], f"topic {topic!r} could not be described")
        return sorted(partition.id for partition in described.partitions)

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """Log start and last stable offset of each partition."""
        partitions = self.partitions(topic)
        starts, ends = self.starts(topic, partitions), self.ends(topic, partitions)
        return {index: (starts[index], max(starts[index], ends[index])) for index in partitions}

    def starts(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Where the log of each of these partitions starts."""
        return {index: found.offset for index, found in self._listed(topic, partitions, OffsetSpec.earliest()).items()}

    def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """The last stable offset of each of these partitions."""
        return {index: found.offset for index, found in self._listed(topic, partitions, OffsetSpec.latest()).items()}

    def newest_ms(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """The largest timestamp in each of these partitions, -1 where there is none."""
        listed = self._listed(topic, partitions, OffsetSpec.max_timestamp())
        return {index: found.timestamp if found.offset >= 0 else -1 for index, found in listed.items()}

    def offset_at(self, topic: str, timestamp_ms: int, partitions: Sequence[int] | None = None) -> dict[int, int]:
        """The first offset with at least this timestamp; the last stable offset where there is none.

        Of these partitions, or of all, which takes a question more."""
        partitions = self.partitions(topic) if partitions is None else partitions
        listed = self._listed(topic, partitions, OffsetSpec.for_timestamp(timestamp_ms))
        found = {index: one.offset for index, one in listed.items()}
        if any(offset < 0 for offset in found.values()):
            ends = self.ends(topic, partitions)
            found = {index: ends[index] if offset < 0 else offset for index, offset in found.items()}
        return found

    def close(self) -> None:
        """Forget the client."""
        self._admin = None

    def _listed(self, topic: str, partitions: Sequence[int], spec: OffsetSpec) -> dict[int, ListOffsetsResultInfo]:
        if not partitions:
            return {}
        asked = self.admin.list_offsets(
            {TopicPartition(topic, index): spec for index in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        doing = f"the offsets of topic {topic!r} could not be read"
        return {key.partition: self._answer(future, doing) for key, future in asked.items()}

    def _answer(self, future: Future[T], doing: str) -> T:
        try:
            return future.result(REQUEST_TIMEOUT_S + 5)
        except KafkaException as error:
            raise raised(error.args[0], doing, self.bootstrap) from None
        except TimeoutError:
            raise ServerAway(f"{doing}: {self.bootstrap} did not answer in {REQUEST_TIMEOUT_S:.0f} s.") from None


def raised(error: KafkaError, doing: str, bootstrap: str) -> HeadraceError:
    """The error to raise for one of the client's."""
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return UnknownTopic(
            f"{doing}: there is none at {bootstrap}.", hint="`headrace topic list` shows what there is."
        )
    sentence = f"{doing}: {error.str().rstrip('.')} ({error.name().lstrip('_')})."
    if error.code() in _AWAY or error.retriable():
        return ServerAway(sentence, hint=f"Is the broker at {bootstrap} up? `headrace up` starts one.")
    return HeadraceError(sentence)
