"""Metrics of a log that is elsewhere, as far as any Kafka client may ask, under the names of Kafka's exporters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.errors import HeadraceError
from headrace.exposition import Family, Kind, Sample, lines
from headrace.feed.cluster import REQUEST_TIMEOUT_S, Cluster, raised

__all__ = ["log_text"]

Place = tuple[str, int]
_PARTITION, _GROUP = ("topic", "partition"), ("consumergroup", "topic", "partition")


def log_text(cluster: Cluster) -> str:
    """All of it, in Prometheus' format."""
    try:
        found = [*_nodes_and_topics(cluster)]
    except KafkaException as error:
        cluster.close()
        raise raised(error.args[0], "the log could not be asked for its metrics", cluster.bootstrap) from None
    return "".join(line for family in found for line in lines(family))


def _nodes_and_topics(cluster: Cluster) -> Iterator[Family]:
    told = cluster.admin.list_topics(timeout=REQUEST_TIMEOUT_S)
    yield Family("kafka_brokers", "gauge", "Nodes of the cluster.", (), [((), len(told.brokers))])
    nodes: list[Sample] = [((f"{one.host}:{one.port}", str(one.id)), 1) for one in told.brokers.values()]
    yield Family("kafka_broker_info", "gauge", "The nodes.", ("address", "id"), nodes)
    topics = {name: one for name, one in sorted(told.topics.items()) if not name.startswith("__") and one.error is None}
    counts: list[Sample] = [((name,), len(one.partitions)) for name, one in topics.items()]
    yield Family("kafka_topic_partitions", "gauge", "Partitions of a topic.", ("topic",), counts)
    places = [(name, index) for name, one in topics.items() for index in sorted(one.partitions)]
    ends = _offsets(cluster, places, OffsetSpec.latest())
    yield _of("kafka_topic_partition_current_offset", "Where a partition ends.", _PARTITION, _named(ends))
    starts = _offsets(cluster, places, OffsetSpec.earliest())
    yield _of("kafka_topic_partition_oldest_offset", "Where a partition begins.", _PARTITION, _named(starts))
    yield from _groups(cluster, starts, ends)


def _groups(cluster: Cluster, starts: dict[Place, int], ends: dict[Place, int]) -> Iterator[Family]:
    listed = cluster.admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result(REQUEST_TIMEOUT_S)
    names = sorted(str(one.group_id) for one in listed.valid)
    described = cluster.admin.describe_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S) if names else {}
    members: list[Sample] = [((name,), len(one.members)) for name, one in _answered(described)]
    yield Family("kafka_consumergroup_members", "gauge", "Members of a group.", ("consumergroup",), members)
    asked: dict[str, Any] = {}
    for name in names:
        asked |= cluster.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=REQUEST_TIMEOUT_S
        )
    committed: dict[tuple[str, str, str], int] = {}
    lags: dict[tuple[str, str, str], int] = {}
    for name, told in _answered(asked):
        for one in told.topic_partitions:
            place = (one.topic, one.partition)
            if one.offset >= 0 and place in ends:
                labels = (name, one.topic, str(one.partition))
                committed[labels] = one.offset
                lags[labels] = max(0, ends[place] - max(one.offset, starts.get(place, 0)))
    yield _of("kafka_consumergroup_current_offset", "What a group has committed.", _GROUP, committed.items())
    yield _of(
        "kafka_consumergroup_current_offset_sum",
        "What a group has committed, over all partitions.",
        _GROUP[:2],
        _summed(committed),
    )
    yield _of("kafka_consumergroup_lag", "How many records a group is behind.", _GROUP, lags.items())
    yield _of("kafka_consumergroup_lag_sum", "How many records a group is behind.", _GROUP[:2], _summed(lags))


def _offsets(cluster: Cluster, places: list[Place], spec: OffsetSpec) -> dict[Place, int]:
    if not places:
        return {}
    wanted = {TopicPartition(topic, index): spec for topic, index in places}
    asked = cluster.admin.list_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S)
    return {(one.topic, one.partition): told.offset for one, told in _answered(asked) if told.offset >= 0}


def _answered(asked: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """What was answered; a topic or group that went away meanwhile is left out."""
    failed: KafkaException | None = None
    answered = 0
    for key, future in asked.items():
        try:
            told = future.result(REQUEST_TIMEOUT_S + 5)
        except KafkaException as error:
            failed = error
            continue
        except TimeoutError:
            raise HeadraceError("the log did not answer when asked for its metrics.") from None
        answered += 1
        yield key, told
    if failed is not None and not answered:
        raise failed


def _named(found: dict[Place, int]) -> Iterable[Sample]:
    return [((topic, str(index)), offset) for (topic, index), offset in found.items()]


def _summed(found: dict[tuple[str, str, str], int]) -> Iterable[Sample]:
    sums: Counter[tuple[str, str]] = Counter()
    for (group, topic, _), value in found.items():
        sums[group, topic] += value
    return list(sums.items())


def _of(name: str, text: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Family:
    kind: Kind = "gauge"
    return Family(name, kind, text, labels, samples)
