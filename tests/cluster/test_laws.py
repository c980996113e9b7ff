"""What holds on one machine holds on a cluster: the laws of feeds and of served views, over three brokers, with views
in PostgreSQL; and that what is made there has copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from headrace.feed.cluster import Cluster
from headrace.feed.topics import settings_of_topic
from headrace.operations.cluster import Cluster as OperatedCluster
from headrace.operations.queues import next_records, parts_of, queues_of
from tests.cli.command import Cli
from tests.cli.test_queues import queue
from tests.feed.test_feed import (
    Place,
    test_a_time_is_found_in_every_partition,
    test_a_transaction_over_partitions_is_seen_once_in_each_or_in_none,
    test_an_unknown_topic_is_an_error_with_a_name,
    test_only_committed_records_are_read,
    test_random_transactions_give_what_was_committed,
    test_records_come_as_they_were_written,
    test_records_that_were_deleted_before_they_are_read_are_told_not_skipped_by_who_wants_all,
)
from tests.servers import Headrace, KafkaCluster
from tests.serving.live import LiveNode
from tests.serving.test_node import (
    served,
    test_changes_arrive_as_they_happen_and_go_on_after_a_lost_connection,
    test_committed_changes_are_seen_and_aborted_ones_never,
    test_tables_have_the_types_of_the_view,
    test_the_command_line_reads_views,
    test_the_process_that_serves_is_started_again_and_that_is_said,
)

__all__ = [
    "queue",
    "test_a_time_is_found_in_every_partition",
    "test_a_transaction_over_partitions_is_seen_once_in_each_or_in_none",
    "test_an_unknown_topic_is_an_error_with_a_name",
    "test_changes_arrive_as_they_happen_and_go_on_after_a_lost_connection",
    "test_committed_changes_are_seen_and_aborted_ones_never",
    "test_only_committed_records_are_read",
    "test_random_transactions_give_what_was_committed",
    "test_records_come_as_they_were_written",
    "test_records_that_were_deleted_before_they_are_read_are_told_not_skipped_by_who_wants_all",
    "test_tables_have_the_types_of_the_view",
    "test_the_command_line_reads_views",
    "test_the_process_that_serves_is_started_again_and_that_is_said",
]

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


@pytest.fixture
def place(cluster: KafkaCluster) -> Iterator[Place]:
    found = Place(cluster, None)
    yield found
    found.feed.close()


@pytest.fixture
def cli(cluster: KafkaCluster) -> Cli:
    return Cli(cluster.bootstrap)


@pytest.fixture
def new_name(new_app: Callable[[], str]) -> Callable[[str], str]:
    return lambda stem: f"{stem}-{new_app()}"


@pytest.fixture(scope="module")
def live(
    tmp_path_factory: pytest.TempPathFactory, cluster: KafkaCluster, new_views: Callable[[], str]
) -> Iterator[LiveNode]:
    with served(tmp_path_factory.mktemp("live"), {"HEADRACE_VIEWS": new_views()}, cluster) as node:
        yield node


def test_a_queue_is_shared_and_settled_record_by_record(cluster: KafkaCluster, queue: str) -> None:
    asked = OperatedCluster(cluster.bootstrap, {})
    [(topics, lag)] = [(one["topics"], one["lag"]) for one in queues_of(asked) if one["group"] == queue]
    assert (topics, lag) == ([queue], 4)
    assert [one["value"] for one in next_records(asked, parts_of(asked, queue), 10)] == ["v1", "v3", "v4", "v5"]


def test_what_is_made_has_three_copies_of_which_two_must_be_written(
    cluster: KafkaCluster, live: LiveNode, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(cluster)
    cli = Cli(f"kafka://{cluster.bootstrap}")
    cli("topic", "create", f"{topic}-by-hand")
    cli("topic", "create", f"{topic}-alone", "--replication", "1", "--set", "min.insync.replicas=1")
    found = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}).list_topics(timeout=30).topics
    copies = {name: {len(one.replicas) for one in found[name].partitions.values()} for name in found}
    for name in ("headrace.catalog", "headrace.parts", "shop.sales", topic, f"{topic}-by-hand"):
        assert copies[name] == {3}, name
        assert settings_of_topic(Cluster(cluster.bootstrap, {}), name)["min.insync.replicas"] == "2", name
    assert copies[f"{topic}-alone"] == {1}


def test_what_is_moved_there_has_three_copies_too(cluster: KafkaCluster, tmp_path: Path) -> None:
    node = Headrace(tmp_path / "node")
    try:
        cli = Cli(node.bootstrap)
        cli("topic", "create", "moved-here", "--partitions", "2")
        cli("produce", "moved-here", stdin="one\ntwo\n")
        cli("move", "--to", f"kafka://{cluster.bootstrap}", "--data", str(node.data))
    finally:
        node.stop()
    there = Cluster(cluster.bootstrap, {})
    found = there.admin.list_topics("moved-here", timeout=30).topics["moved-here"].partitions
    assert {len(one.replicas) for one in found.values()} == {3}
    assert settings_of_topic(there, "moved-here")["min.insync.replicas"] == "2"
