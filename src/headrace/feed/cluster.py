"""What is asked of the broker itself: partitions, offsets, who it is."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from headrace.errors import HeadraceError, OffsetOutOfRange, ServerAway, UnknownTopic
from headrace.feed.brokers import Brokers, brokers_of
from headrace.feed.client_settings import OURS

__all__ = ["Cluster", "comes_back", "deleted", "raised"]

REQUEST_TIMEOUT_S = 10.0
_COMES_BACK = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)

T = TypeVar("T")


class Cluster:
    """A Headrace node or an Apache Kafka cluster, as a client sees it."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str]) -> None:
        self.bootstrap = bootstrap
        self.settings = dict(settings)
        self._admin: AdminClient | None = None
        self._topic_ids: dict[str, str] = {}
        self._brokers: Brokers | None = None

    def config(self, **more: object) -> dict[str, Any]:
        """Settings for a client; names with underscores for dots. What the user says wins, but for ``OURS``."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "headrace-feed",
            "log_level": 0,
            "reconnect.backoff.max.ms": 1000,
            **{name.replace("_", "."): value for name, value in more.items()},
            **{name: value for name, value in self.settings.items() if name not in OURS},
        }

    @property
    def admin(self) -> AdminClient:
        """The client that asks, made when first used."""
        if self._admin is None:
            self._admin = AdminClient(self.config())
        return self._admin

    def consumer(self, **more: object) -> Consumer:
        """A consumer of committed records, of a group that never comes to exist; ``more`` as for ``config``."""
        settings = {
            "group_id": f"headrace-feed-{uuid.uuid4()}",
            "isolation_level": "read_committed",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "enable_partition_eof": True,
            "fetch_wait_max_ms": 5,  # a fetch that waits for more holds up the next range
            "fetch_queue_backoff_ms": 5,
            "fetch_error_backoff_ms": 100,
            "queued_max_messages_kbytes": 32 << 10,
            "fetch_message_max_bytes": 8 << 20,
        }
        return Consumer(self.config(**{**settings, **more}))

    @property
    def brokers(self) -> Brokers:
        """Who they are, and what they want of new topics; asked once."""
        if self._brokers is None:
            try:
                self._brokers = brokers_of(self.admin)
            except KafkaException as error:
                raise raised(error.args[0], "the cluster could not be asked what it is", self.bootstrap) from None
        return self._brokers

    def id(self) -> str | None:
        """The cluster's id."""
        try:
            found: str | None = self.admin.list_topics(timeout=REQUEST_TIMEOUT_S).cluster_id
        except KafkaException as error:
            raise raised(error.args[0], "the cluster could not be asked who it is", self.bootstrap) from None
        return found

    def hosts(self) -> list[str]:
        """The hosts that clients are told to connect to."""
        try:
            known = self.admin.list_topics(timeout=REQUEST_TIMEOUT_S).brokers
        except KafkaException as error:
            raise raised(error.args[0], "the cluster could not be asked for its brokers", self.bootstrap) from None
        return sorted(str(broker.host) for broker in known.values())

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic that must exist."""
        asked = self.admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S)
        described = self._answer(asked[topic], f"topic {topic!r} could not be described")
        self._topic_ids[topic] = str(described.topic_id)
        return sorted(partition.id for partition in described.partitions)

    def topic_id(self, topic: str) -> str:
        """The id that a topic had when its partitions or bounds were last asked for."""
        if topic not in self._topic_ids:
            self.partitions(topic)
        return self._topic_ids[topic]

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
        found = {key.partition: self._answer(future, doing) for key, future in asked.items()}
        if any(one.offset == OFFSET_INVALID for one in found.values()):  # a broker that went away as it was asked
            raise ServerAway(f"{doing}: {self.bootstrap} did not say them.")
        return found

    def _answer(self, future: Future[T], doing: str) -> T:
        """What is answered. A client whose broker went away is forgotten: it may never learn the new leader epoch."""
        try:
            return future.result(REQUEST_TIMEOUT_S + 5)
        except KafkaException as error:
            if comes_back(error.args[0]):
                self.close()
            raise raised(error.args[0], doing, self.bootstrap) from None
        except TimeoutError:
            raise ServerAway(f"{doing}: {self.bootstrap} did not answer in {REQUEST_TIMEOUT_S:.0f} s.") from None


def comes_back(error: KafkaError) -> bool:
    """Whether the broker is away, busy with its start, or without room on its disk: waiting helps."""
    return error.retriable() or error.code() in _COMES_BACK


def deleted(topic: str, partition: int) -> OffsetOutOfRange:
    """The error to raise where records are gone that have to be read."""
    return OffsetOutOfRange(
        f"records of {topic}[{partition}] were deleted, or lost, before they could be read.",
        hint="raise the topic's retention; a query starts over with --rebuild, or from a time with --from",
    )


def raised(error: KafkaError, doing: str, bootstrap: str) -> HeadraceError:
    """The error to raise for one of the client's."""
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return UnknownTopic(
            f"{doing}: there is none at {bootstrap}.", hint="`headrace topic list` shows what there is."
        )
    sentence = f"{doing}: {error.str().rstrip('.')} ({error.name().lstrip('_')})."
    if comes_back(error):
        return ServerAway(sentence, hint=f"Is the broker at {bootstrap} up? `headrace up` starts one.")
    return HeadraceError(sentence)
