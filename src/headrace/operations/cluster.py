"""A running cluster (a Headrace node or Apache Kafka) as an operator sees it.

The client (librdkafka) retries a dead server for minutes and logs to stderr. People want to know at once: so a plain
question is asked first, every request has a deadline, and what the client logs is dropped unless ``-X debug=...``
asks for it.
"""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import HeadraceError, InvalidRequest, NotFound, ServerAway, UnknownTopic
from headrace.operations.positions import Position, Relative

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient, TopicDescription

    from headrace.feed.cluster import Cluster as AskedCluster

__all__ = ["DEFAULT_SERVER", "Cluster", "Partition", "PartitionOffsets", "failure"]

DEFAULT_SERVER = "127.0.0.1:9092"
CONNECT_TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 10.0

T = TypeVar("T")
Partition = tuple[str, int]
"""Topic and partition index."""

_API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 0, -1)
"""Size, key, version 0, correlation id, no client id: what every broker answers, also before authentication."""

_HINTS = {
    "UNKNOWN_TOPIC_OR_PART": "`headrace topic list` shows the topics there are; `headrace topic create` makes one",
    "_UNKNOWN_TOPIC": "`headrace topic list` shows the topics there are; `headrace topic create` makes one",
    "_UNKNOWN_PARTITION": "`headrace topic describe` shows the partitions a topic has",
    "TOPIC_ALREADY_EXISTS": "add --if-not-exists to accept that, or `headrace topic alter` to change it",
    "GROUP_ID_NOT_FOUND": "`headrace group list` shows the groups there are",
    "NON_EMPTY_GROUP": "stop its consumers first; one that was killed leaves after its session timeout",
    "MSG_SIZE_TOO_LARGE": "raise the topic's max.message.bytes, and the client's with -X message.max.bytes=...",
    "TOPIC_EXCEPTION": "names have 1 to 249 letters, digits, dots, underscores and hyphens",
    "INVALID_RECORD": "a compacted topic takes no record without a key; see --key, --key-separator and --key-field",
    "KAFKA_STORAGE_ERROR": "the server's disk is full or failed; see its log",
}

_KINDS: dict[str, type[HeadraceError]] = {
    "UNKNOWN_TOPIC_OR_PART": UnknownTopic,
    "_UNKNOWN_TOPIC": UnknownTopic,
    "_UNKNOWN_PARTITION": UnknownTopic,
    "GROUP_ID_NOT_FOUND": NotFound,
    "INVALID_RECORD": InvalidRequest,
    "KAFKA_STORAGE_ERROR": HeadraceError,
}


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Where a partition begins and ends: ``start <= offset < end``."""

    start: int
    end: int


class Cluster:
    """The cluster at ``server``. Opening it fails fast, with the reason, when nobody answers."""

    def __init__(self, server: str, settings: Mapping[str, str]) -> None:
        self.server = server
        self._settings = dict(settings)
        _ensure_answers(server, plaintext=settings.get("security.protocol", "plaintext").lower().endswith("plaintext"))
        self._admin: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        """The admin client, made when first used."""
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = self._made(AdminClient, {})
        return self._admin

    def asked(self) -> AskedCluster:
        """The same cluster, as other parts of Headrace ask it."""
        from headrace.feed.cluster import Cluster as AskedCluster

        return AskedCluster(self.server, self._settings)

    def producer(self, **settings: object) -> Producer:
        """A producer; settings have librdkafka's names with underscores for dots."""
        from confluent_kafka import Producer

        return self._made(Producer, settings)

    def consumer(self, group: str | None = None, **settings: object) -> Consumer:
        """A consumer, of no group unless one is named."""
        from confluent_kafka import Consumer

        # The client wants a group id even to read what it is assigned; such a group never comes to exist.
        return self._made(Consumer, {"group_id": group or f"headrace-cli-{uuid.uuid4()}", **settings})

    def _made(self, kind: Callable[[dict[str, Any]], T], settings: Mapping[str, object]) -> T:
        from confluent_kafka import KafkaException

        config: dict[str, Any] = {
            "bootstrap.servers": self.server,
            "client.id": "headrace-cli",
            "log_level": 0 if "debug" not in self._settings else 7,
            "socket.connection.setup.timeout.ms": 3000,
            **{name.replace("_", "."): value for name, value in settings.items()},
            **self._settings,
        }
        try:
            return kind(config)
        except KafkaException as error:
            raise InvalidRequest(
                f"the Kafka client does not take these settings: {error.args[0].str()}",
                hint="-X takes the names and values of librdkafka's configuration",
            ) from None

    def answer(self, future: Future[T], doing: str) -> T:
        """What the cluster answered; ``doing`` begins the sentence if it is an error."""
        from confluent_kafka import KafkaException

        try:
            return future.result(REQUEST_TIMEOUT_S + 5)
        except KafkaException as error:
            raise failure(error.args[0], doing, self.server) from None
        except TimeoutError:
            raise ServerAway(f"{doing}: {self.server} did not answer in {REQUEST_TIMEOUT_S:.0f} s.") from None

    def topic_names(self) -> list[str]:
        """Every topic, sorted."""
        from confluent_kafka import KafkaException

        try:
            return sorted(self.admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics)
        except KafkaException as error:
            raise failure(error.args[0], "the topics could not be listed", self.server) from None

    def addresses(self) -> list[tuple[str, int]]:
        """Where its servers can be asked without encryption and passwords; none where that cannot be."""
        if self._settings.get("security.protocol", "plaintext").lower() != "plaintext":
            return []
        brokers = self.admin.list_topics(timeout=REQUEST_TIMEOUT_S).brokers.values()
        return [(str(broker.host), broker.port) for broker in brokers]

    def describe(self, topics: Sequence[str]) -> list[TopicDescription]:
        """Partitions, ids and so on of topics that must exist. Never creates one."""
        from confluent_kafka import TopicCollection

        if not topics:
            return []
        wanted = TopicCollection(list(topics))
        found = self.admin.describe_topics(wanted, request_timeout=REQUEST_TIMEOUT_S)
        return [self._existing(found[name], name) for name in topics]

    def _existing(self, found: Future[T], topic: str) -> T:
        from confluent_kafka import KafkaError, KafkaException

        error = found.exception(REQUEST_TIMEOUT_S + 5)
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise UnknownTopic(f"there is no topic {topic!r}.", hint="`headrace topic list` shows the topics there are")
        return self.answer(found, f"topic {topic!r} could not be described")

    def partitions(self, topic: str) -> list[Partition]:
        """Every partition of a topic that must exist."""
        return sorted((topic, partition.id) for partition in self.describe([topic])[0].partitions)

    def offsets(self, partitions: Iterable[Partition]) -> dict[Partition, PartitionOffsets]:
        """Where partitions begin and end."""
        wanted = list(partitions)
        starts = self.resolve(Position(Relative.BEGINNING), wanted)
        ends = self.resolve(Position(Relative.END), wanted)
        return {partition: PartitionOffsets(starts[partition], ends[partition]) for partition in wanted}

    def resolve(self, position: Position, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The offset of a position in each partition. What lies outside a partition is moved to its nearest end,
        unless it lies beyond the end of all of them."""
        from confluent_kafka.admin import OffsetSpec

        if position.relative is Relative.BEGINNING:
            return self._list_offsets(partitions, OffsetSpec.earliest())
        if position.relative is Relative.END:
            return self._list_offsets(partitions, OffsetSpec.latest())
        bounds = self.offsets(partitions)
        if position.relative is Relative.TIME:
            found = self._list_offsets(partitions, OffsetSpec.for_timestamp(position.value))
            return {p: bounds[p].end if offset < 0 else offset for p, offset in found.items()}
        if position.relative is Relative.LAST:
            return {p: max(b.start, b.end - position.value) for p, b in bounds.items()}
        furthest = max((b.end for b in bounds.values()), default=0)
        if position.value > furthest:
            raise InvalidRequest(
                f"offset {position.value} is beyond the end of the log, which is {furthest}.",
                hint="`headrace topic describe` shows where each partition begins and ends",
            )
        return {p: min(max(position.value, b.start), b.end) for p, b in bounds.items()}

    def _list_offsets(self, partitions: Sequence[Partition], spec: Any) -> dict[Partition, int]:
        from confluent_kafka import TopicPartition

        if not partitions:
            return {}
        asked = {TopicPartition(topic, index): spec for topic, index in partitions}
        found = self.admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
        return {
            (key.topic, key.partition): self.answer(
                future, f"the offsets of {key.topic}[{key.partition}] could not be read"
            ).offset
            for key, future in found.items()
        }


def failure(error: KafkaError, doing: str, server: str) -> HeadraceError:
    """A Kafka error as a sentence and a hint."""
    name = error.name()
    if name in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"):
        return ServerAway(
            f"{doing}: {server} did not answer as a Kafka server.",
            detail=error.str(),
            hint="is that the right port? `headrace up` prints where it listens",
        )
    sentence = f"{doing}: {error.str().rstrip('.')} ({name.lstrip('_')})."
    kind = _KINDS.get(name) or (ServerAway if error.retriable() else InvalidRequest)
    return kind(sentence, hint=_HINTS.get(name))


def _ensure_answers(server: str, *, plaintext: bool) -> None:
    """Raise unless one of the addresses answers; over plaintext it must answer Kafka's first question."""
    reasons = []
    for address in server.split(","):
        host, port = _host_and_port(address.strip())
        try:
            with socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S) as connection:
                if plaintext:
                    connection.sendall(_API_VERSIONS_REQUEST)
                    if not connection.recv(1):
                        raise ConnectionResetError("it closed the connection")
            return
        except TimeoutError:
            reasons.append(f"{address}: no answer in {CONNECT_TIMEOUT_S:.0f} s")
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
    raise ServerAway(
        f"no Kafka server answers at {server}.",
        detail="; ".join(reasons),
        hint="start one with `headrace up`, or say where it is with --log kafka://HOST:PORT or HEADRACE_LOG",
    )


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon and "/" not in address:
        return address, 9092
    if not host or not port.isdigit() or int(port) > 65535 or "/" in host:
        raise InvalidRequest(f"{address!r} is not HOST:PORT.", hint="say it like --log kafka://127.0.0.1:9092")
    return host.strip("[]"), int(port)
