"""A session with one broker: raw requests in any version, recorded, and short ways to say the usual ones."""

from __future__ import annotations

import inspect
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.contract import batches, schema
from tests.contract.raw import Connection
from tests.contract.schema import Tree
from tests.contract.transcript import Transcript

# What Kafka 4.3 advertises for the APIs of this issue; test_api_versions holds it against the real Kafka.
VERSIONS: dict[str, tuple[int, int]] = {
    "produce": (3, 13),
    "fetch": (4, 18),
    "list_offsets": (1, 11),
    "metadata": (0, 13),
    "offset_commit": (2, 10),
    "offset_fetch": (1, 10),
    "find_coordinator": (0, 6),
    "join_group": (0, 9),
    "heartbeat": (0, 4),
    "leave_group": (0, 5),
    "sync_group": (0, 5),
    "describe_groups": (0, 6),
    "list_groups": (0, 5),
    "api_versions": (0, 4),
    "create_topics": (2, 7),
    "delete_topics": (1, 6),
    "delete_records": (0, 2),
    "init_producer_id": (0, 5),
    "offset_for_leader_epoch": (2, 4),
    "add_partitions_to_txn": (0, 5),
    "add_offsets_to_txn": (0, 4),
    "end_txn": (0, 5),
    "txn_offset_commit": (0, 5),
    "describe_producers": (0, 0),
    "describe_transactions": (0, 0),
    "list_transactions": (0, 2),
    "describe_acls": (1, 3),
    "describe_configs": (1, 4),
    "alter_configs": (0, 2),
    "describe_log_dirs": (1, 5),
    "create_partitions": (0, 3),
    "delete_groups": (0, 2),
    "elect_leaders": (0, 2),
    "incremental_alter_configs": (0, 1),
    "list_partition_reassignments": (0, 0),
    "offset_delete": (0, 0),
    "describe_client_quotas": (0, 1),
    "alter_client_quotas": (0, 1),
    "describe_cluster": (0, 2),
    "consumer_group_heartbeat": (0, 1),
    "consumer_group_describe": (0, 1),
    "list_config_resources": (0, 1),
    "describe_topic_partitions": (0, 0),
    "share_group_heartbeat": (1, 1),
    "share_group_describe": (1, 1),
    "share_fetch": (1, 2),
    "share_acknowledge": (1, 2),
    "describe_share_group_offsets": (0, 1),
    "alter_share_group_offsets": (0, 0),
    "delete_share_group_offsets": (0, 0),
}

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -3, -4, -5


@dataclass(frozen=True)
class Topic:
    """A topic that a scenario made."""

    name: str
    id: uuid.UUID


@dataclass
class Session:
    """Requests to one broker; `call` records the answer, `ask` does not."""

    bootstrap: str
    prefix: str
    version: int = -1
    transcript: Transcript = field(default_factory=Transcript)
    _connections: list[Connection] = field(default_factory=list)

    def connect(self, client_id: str = "contract") -> Connection:
        connection = Connection(self.bootstrap, client_id=client_id)
        self._connections.append(connection)
        return connection

    @property
    def connection(self) -> Connection:
        return self._connections[0] if self._connections else self.connect()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def name(self, suffix: str) -> str:
        return f"{self.prefix}-{suffix}"

    def ask(self, api: str, version: int | None = None, /, **body: Any) -> Tree:
        return self.connection.call(api, VERSIONS[api][1] if version is None else version, **body)

    def call(self, api: str, version: int | None = None, /, **body: Any) -> Tree:
        tree = self.ask(api, version, **body)
        self.note(f"{len(self.transcript.entries)} {api}", tree)
        return tree

    def note(self, label: str, tree: Any) -> None:
        self.transcript.add(label, tree)

    def until(self, condition: Callable[[], Any], what: str = "condition", patience: float = 15.0) -> Any:
        """Polls: Kafka's metadata follows a change a little later."""
        deadline = time.monotonic() + patience
        while not (value := condition()):
            assert time.monotonic() < deadline, f"{what} did not come true in {patience} s"
            time.sleep(0.02)
        return value

    def topic(self, suffix: str = "t", partitions: int = 1, **configs: str) -> Topic:
        """A new topic, ready; config names are written with underscores."""
        name = self.name(suffix)
        made = self.ask(
            "create_topics",
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
                }
            ],
            timeout=10_000,
        )["topics"][0]
        assert made["error_code"] == "none", made
        self.until(lambda: self.ready(name, partitions), f"topic {name}")
        self.transcript.names.learn(made["topic_id"], f"<id of {name}>")
        return Topic(name, made["topic_id"])

    def ready(self, name: str, partitions: int) -> bool:
        found = self.ask("metadata", topics=[{"name": name}], allow_auto_topic_creation=False)["topics"][0]
        if len(found["partitions"]) != partitions:
            return False
        asked = [{"partition_index": index, "timestamp": LATEST} for index in range(partitions)]
        (answer,) = self.ask("list_offsets", 7, replica_id=-1, topics=[{"name": name, "partitions": asked}])["topics"]
        return all(one["error_code"] == "none" for one in answer["partitions"])

    def produce_body(self, topic: Topic | str, records: bytes | None, partition: int = 0, acks: int = -1) -> Tree:
        name, identity = (
            (topic.name, topic.id) if isinstance(topic, Topic) else (topic, uuid.uuid5(uuid.NAMESPACE_OID, topic))
        )
        data = [{"index": partition, "records": records}]
        return {
            "acks": acks,
            "timeout": 10_000,
            "topic_data": [{"name": name, "topic_id": identity, "partition_data": data}],
        }

    def produce(
        self,
        topic: Topic | str,
        records: bytes | None = None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int | None = None,
    ) -> Tree:
        """Produces and records the answer; returns the partition's part of it."""
        payload = batches.batch() if records is None else records
        answer = self.call("produce", version, **self.produce_body(topic, payload, partition, acks))
        part: Tree = answer["responses"][0]["partition_responses"][0]
        return part

    def fill(self, topic: Topic, *payloads: bytes, partition: int = 0) -> None:
        """Produces without recording; every batch must be taken."""
        for payload in payloads or (batches.batch(),):
            answer = self.ask("produce", **self.produce_body(topic, payload, partition))
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == "none", answer

    def fetch_body(
        self,
        topics: Mapping[Topic, Mapping[int, int]],
        *,
        max_wait: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 26,
        partition_max_bytes: int = 1 << 20,
        isolation: int = 0,
        session: tuple[int, int] = (0, -1),
        leader_epoch: int = -1,
        forget: Mapping[Topic, Sequence[int]] | None = None,
    ) -> Tree:
        return {
            "max_wait": max_wait,
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "isolation_level": isolation,
            "session_id": session[0],
            "session_epoch": session[1],
            "topics": [
                {
                    "topic": topic.name,
                    "topic_id": topic.id,
                    "partitions": [
                        {
                            "partition": index,
                            "fetch_offset": offset,
                            "partition_max_bytes": partition_max_bytes,
                            "current_leader_epoch": leader_epoch,
                        }
                        for index, offset in partitions.items()
                    ],
                }
                for topic, partitions in topics.items()
            ],
            "forgotten_topics_data": [
                {"topic": topic.name, "topic_id": topic.id, "partitions": list(partitions)}
                for topic, partitions in (forget or {}).items()
            ],
        }

    def fetch(
        self, topic: Topic, offset: int = 0, *, partition: int = 0, version: int | None = None, **how: Any
    ) -> Tree:
        """Fetches one partition and records the answer; returns the partition's part (or the whole)."""
        answer = self.call("fetch", version, **self.fetch_body({topic: {partition: offset}}, **how))
        return answer["responses"][0]["partitions"][0] if answer["responses"] else answer

    def list_offset(
        self,
        topic: Topic | str,
        timestamp: int,
        *,
        partition: int = 0,
        version: int | None = None,
        isolation: int = 0,
        leader_epoch: int = -1,
    ) -> Tree:
        name = topic.name if isinstance(topic, Topic) else topic
        answer = self.call(
            "list_offsets",
            version,
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": leader_epoch}
                    ],
                }
            ],
        )
        part: Tree = answer["topics"][0]["partitions"][0]
        return part

    def producer(self) -> tuple[int, int]:
        def given() -> Tree | None:
            answer = self.ask(
                "init_producer_id", transactional_id=None, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
            )
            return answer if answer["error_code"] == "none" else None

        answer: Tree = self.until(given, "producer id")
        self.transcript.names.of("producer_id", answer["producer_id"])
        return answer["producer_id"], answer["producer_epoch"]


@dataclass(frozen=True)
class Scenario:
    """A named conversation with a broker, in one version of one API when it is about versions."""

    name: str
    run: Callable[[Session], None]
    version: int = -1

    @property
    def id(self) -> str:
        return self.name if self.version < 0 else f"{self.name}[v{self.version}]"


def scenarios_of(module: Any) -> Iterator[Scenario]:
    """Every public function of a module that takes a session; one per version when it is marked with an API."""
    subject = module.__name__.rsplit(".", 1)[-1]
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ != module.__name__ or name.startswith("_"):
            continue
        if (api := getattr(function, "api", None)) is None:
            yield Scenario(f"{subject}.{name}", function)
            continue
        low, high = VERSIONS[api]
        for version in range(low, high + 1):
            yield Scenario(f"{subject}.{name}", function, version)


def in_every_version(api: str) -> Callable[[Callable[[Session], None]], Callable[[Session], None]]:
    """Marks a scenario to be run once for each version of an API, given as session.version."""
    assert api in schema.KEYS

    def mark(function: Callable[[Session], None]) -> Callable[[Session], None]:
        function.api = api  # type: ignore[attr-defined]
        return function

    return mark
