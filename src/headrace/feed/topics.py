"""Topics that pipelines and change capture need: made if they are not there, and small compacted ones read whole."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec, ResourceType

from headrace.errors import ServerAway, UnknownTopic
from headrace.feed.cluster import REQUEST_TIMEOUT_S, Cluster, raised

__all__ = [
    "CATALOG",
    "COMPACTED",
    "MARKS",
    "change_topic",
    "delete_topics",
    "ensure_topic",
    "read_table",
    "settings_of_topic",
]

CATALOG, MARKS = "headrace.catalog", "headrace.marks"
_LOOK_EVERY_S = 0.02
COMPACTED: Mapping[str, str] = {"cleanup.policy": "compact"}
_SMALL = {**COMPACTED, "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.1"}


def ensure_topic(cluster: Cluster, name: str, partitions: int = 1, config: Mapping[str, str] = _SMALL) -> None:
    """Make a topic unless there is one of that name, with as many copies as is sensible there."""
    wanted = cluster.brokers
    new = NewTopic(name, partitions, wanted.replication, config={**wanted.settings, **config})
    made = cluster.admin.create_topics([new])
    try:
        made[name].result(REQUEST_TIMEOUT_S)
        _wait_until_known(cluster, name)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise raised(error.args[0], f"topic {name!r} could not be made", cluster.bootstrap) from None
    except TimeoutError:
        raise ServerAway(f"topic {name!r} could not be made: {cluster.bootstrap} did not answer.") from None


def _wait_until_known(cluster: Cluster, name: str) -> None:
    """A topic that was just made is known to Kafka's controller: wait for every broker, for any may be asked next."""
    for address in () if cluster.brokers.embedded else cluster.brokers.addresses:
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        asked = Cluster(address, cluster.settings)
        while time.monotonic() < deadline:
            try:
                asked.partitions(name)
                break
            except UnknownTopic:
                time.sleep(_LOOK_EVERY_S)
            except ServerAway:
                break


def settings_of_topic(cluster: Cluster, name: str) -> dict[str, str]:
    """All settings of a topic, as they hold for it."""
    resource = ConfigResource(ResourceType.TOPIC, name)
    asked = cluster.admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
    try:
        found = asked[resource].result(REQUEST_TIMEOUT_S + 5)
    except KafkaException as error:
        raise raised(error.args[0], f"the settings of topic {name!r} could not be read", cluster.bootstrap) from None
    return {str(entry.name): str(entry.value) for entry in found.values()}


def change_topic(cluster: Cluster, name: str, settings: Mapping[str, str]) -> None:
    """Change settings of a topic; the others stay."""
    changes = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
    asked = cluster.admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
    try:
        asked[resource].result(REQUEST_TIMEOUT_S + 5)
    except KafkaException as error:
        raise raised(error.args[0], f"the settings of topic {name!r} were not changed", cluster.bootstrap) from None


def delete_topics(cluster: Cluster, names: list[str]) -> None:
    """Delete those of these topics that exist."""
    for name, future in (cluster.admin.delete_topics(names) if names else {}).items():
        try:
            future.result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise raised(error.args[0], f"topic {name!r} could not be deleted", cluster.bootstrap) from None


def read_table(cluster: Cluster, topic: str, prefix: str = "", patience_s: float = 60.0) -> dict[str, bytes]:
    """The committed value of each key of a topic with one partition, up to its end as of now.

    Transactions that were open at the end are waited for: a committed record behind one of them must not be missed.
    """
    partition = TopicPartition(topic, 0)
    asked = cluster.admin.list_offsets(
        {partition: OffsetSpec.latest()},
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=REQUEST_TIMEOUT_S,
    )
    try:
        end = asked[partition].result(REQUEST_TIMEOUT_S + 5).offset
    except KafkaException as error:
        raise raised(error.args[0], f"topic {topic!r} could not be read", cluster.bootstrap) from None
    found: dict[str, bytes] = {}
    if end <= 0:
        return found
    deadline = time.monotonic() + patience_s
    consumer = cluster.consumer()
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while time.monotonic() < deadline:
            for message in consumer.consume(10_000, 0.05):
                failed = message.error()
                if failed is not None:
                    if failed.code() == KafkaError._PARTITION_EOF and (message.offset() or 0) >= end:
                        return found
                    continue
                _keep(found, message.key(), message.value(), prefix)
    finally:
        consumer.close()
    raise ServerAway(
        f"topic {topic!r} could not be read to its end in {patience_s:.0f} s.",
        hint=f"Is the broker at {cluster.bootstrap} up? A transaction that stays open holds readers back.",
    )


def _keep(found: dict[str, bytes], key: bytes | str | None, value: bytes | str | None, prefix: str) -> None:
    name = key.decode() if isinstance(key, bytes) else key or ""
    if not name.startswith(prefix):
        return
    if value is None:
        found.pop(name, None)
    else:
        found[name] = value if isinstance(value, bytes) else value.encode()
