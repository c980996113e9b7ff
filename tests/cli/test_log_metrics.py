"""Metrics of a log, as any Kafka client may ask for them: what the serving process tells of Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka as ck
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.errors import ServerAway
from headrace.feed.cluster import Cluster
from headrace.serving.log_metrics import log_text
from tests.cli.command import Cli, on_both
from tests.servers import Server, free_port

pytestmark = pytest.mark.system


@on_both
def test_topics_and_the_lag_of_groups_are_told(
    server: Server, cli: Cli, topic: str, new_name: Callable[[str], str]
) -> None:
    group = new_name("billing")
    cli("produce", topic, "--partition", "1", stdin="a\nb\nc\n")
    consumer = ck.Consumer({"bootstrap.servers": server.bootstrap, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[ck.TopicPartition(topic, 1, 1), ck.TopicPartition(topic, 2, 0)], asynchronous=False)
    consumer.close()
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(log_text(Cluster(server.bootstrap, {})))
        for sample in family.samples
    }
    assert found["kafka_brokers",] == 1
    assert found["kafka_broker_info", server.bootstrap, "1"] == 1
    assert found["kafka_topic_partitions", topic] == 3
    assert [found["kafka_topic_partition_current_offset", topic, str(index)] for index in range(3)] == [0, 3, 0]
    assert found["kafka_topic_partition_oldest_offset", topic, "1"] == 0
    assert found["kafka_consumergroup_members", group] == 0
    assert found["kafka_consumergroup_current_offset", group, topic, "1"] == 1
    assert found["kafka_consumergroup_lag", group, topic, "1"] == 2
    assert found["kafka_consumergroup_lag", group, topic, "2"] == 0
    assert found["kafka_consumergroup_lag_sum", group, topic] == 2
    assert not [labels for labels in found if "__consumer_offsets" in labels]


def test_a_log_that_is_away_is_said_to_be() -> None:
    with pytest.raises(ServerAway):
        log_text(Cluster(f"127.0.0.1:{free_port()}", {}))
