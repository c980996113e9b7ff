"""What applications rely on, held by three brokers with three copies of everything as by one."""

from __future__ import annotations

import pytest

from tests.contract.test_laws_with_clients import (
    reader,
    test_a_group_goes_on_where_it_was,
    test_a_message_too_large_is_refused_and_the_next_is_not,
    test_aiokafka_produces_and_consumes_in_a_group,
    test_an_admin_sees_groups_and_moves_their_offsets,
    test_an_admin_sees_what_it_made,
    test_deleted_records_are_out_of_reach,
    test_every_codec_of_librdkafka_comes_back,
    test_headers_keys_and_nothing_come_back,
    test_idempotent_producers_number_their_records,
    test_kafka_python_produces_and_consumes_in_a_group,
    test_members_of_a_group_share_the_partitions,
    test_offsets_are_found_by_time,
    test_watermarks_are_the_ends_of_the_log,
    test_what_is_produced_is_consumed_in_order,
    topic,
)
from tests.servers import KafkaCluster

__all__ = [
    "reader",
    "test_a_group_goes_on_where_it_was",
    "test_a_message_too_large_is_refused_and_the_next_is_not",
    "test_aiokafka_produces_and_consumes_in_a_group",
    "test_an_admin_sees_groups_and_moves_their_offsets",
    "test_an_admin_sees_what_it_made",
    "test_deleted_records_are_out_of_reach",
    "test_every_codec_of_librdkafka_comes_back",
    "test_headers_keys_and_nothing_come_back",
    "test_idempotent_producers_number_their_records",
    "test_kafka_python_produces_and_consumes_in_a_group",
    "test_members_of_a_group_share_the_partitions",
    "test_offsets_are_found_by_time",
    "test_watermarks_are_the_ends_of_the_log",
    "test_what_is_produced_is_consumed_in_order",
    "topic",
]

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


@pytest.fixture
def broker(cluster: KafkaCluster) -> KafkaCluster:
    return cluster
