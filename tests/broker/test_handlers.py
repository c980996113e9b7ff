"""Every handler over the wire, each law on its own. Codes are those that Apache Kafka 4.3.0 answered."""

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import wire
from headrace.broker.dispatch import load_apis
from headrace.testing.broker import EmbeddedBroker
from tests.broker.messages import (
    ALTER_CONFIGS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    batch,
    create,
    list_offset,
    new_topic,
    read,
    send,
)
from tests.broker.raw_client import RawClient

NO_ID = uuid.UUID(int=0)
NEW_PRODUCER = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
KAFKA_VERSIONS = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9),
    12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 18: (0, 4), 19: (2, 7), 20: (1, 6),
    21: (0, 2), 22: (0, 5), 23: (2, 4), 29: (1, 3), 30: (1, 3), 31: (1, 3), 32: (1, 4), 33: (0, 2),
    35: (1, 5), 37: (0, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 47: (0, 0),
    60: (0, 2), 74: (0, 1), 75: (0, 0),
}  # fmt: skip


def versions_of(client: RawClient, version: int) -> dict[int, tuple[int, int]]:
    request = {"client_software_name": "test", "client_software_version": "1"}
    answer = client.call(API_VERSIONS, version, request)
    assert answer.error_code == 0
    return {item.api_key: (item.min_version, item.max_version) for item in answer.api_keys}


# ApiVersions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_the_advertised_versions_are_kafkas(client: RawClient, version: int) -> None:
    advertised = versions_of(client, version)
    assert advertised.items() >= KAFKA_VERSIONS.items()


def test_only_features_that_work_are_finalized(client: RawClient) -> None:
    answer = client.call(API_VERSIONS, 4, {"client_software_name": "test", "client_software_version": "1"})
    finalized = [feature.name for feature in answer.finalized_features]
    assert finalized == ["group.version", "metadata.version", "share.version", "transaction.version"]


@pytest.mark.parametrize("version", [5, 9, 32767])
def test_an_api_versions_request_from_the_future_is_answered_in_version_0(client: RawClient, version: int) -> None:
    frame = bytearray(client.frame_of(API_VERSIONS, 4, b"\x02x\x021\x00", 5))
    frame[6:8] = version.to_bytes(2, "big")
    client.socket.sendall(frame)
    answer = wire.decode_response(API_VERSIONS, 0, client.receive_frame(), 4)
    assert answer.error_code == 35
    assert [(item.api_key, item.min_version, item.max_version) for item in answer.api_keys] == [(18, 0, 4)]
    assert versions_of(client, 0)


def test_a_client_with_an_impossible_name_is_told_so(client: RawClient) -> None:
    request = {"client_software_name": "a b", "client_software_version": "1"}
    assert client.call(API_VERSIONS, 3, request).error_code == 42


@pytest.mark.parametrize("api", load_apis().values(), ids=lambda api: api.name)
def test_an_empty_request_of_every_api_and_version_is_answered(client: RawClient, api: Any) -> None:
    for version in range(api.min_version, api.max_version + 1):
        request: dict[str, Any] = {"client_software_name": "test", "client_software_version": "1"}
        if api.name == "produce":
            request = {"acks": 1}
        if api.name == "find_coordinator":
            request = {"key": "g", "coordinator_keys": ["g"]}
        client.call(api.key, version, request)


# Metadata --------------------------------------------------------------------------------------------------------


def metadata(client: RawClient, *names: str, version: int = 12, auto: bool = False, **more: Any) -> Any:
    topics = [{"name": name, "topic_id": NO_ID} for name in names]
    return client.call(METADATA, version, {"topics": topics, "allow_auto_topic_creation": auto, **more})


@pytest.mark.parametrize("version", range(14))
def test_metadata_describes_the_node_and_the_topics_asked_for(
    broker: EmbeddedBroker, client: RawClient, version: int
) -> None:
    create(client, "t", 2)
    create(client, "u")
    answer = metadata(client, "t", version=version)
    assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [(1, "127.0.0.1", broker.port)]
    assert [topic.name for topic in answer.topics] == ["t"]
    assert [(item.partition_index, item.leader_id) for item in answer.topics[0].partitions] == [(0, 1), (1, 1)]


def test_all_topics_are_described_on_null_and_none_on_an_empty_list(client: RawClient) -> None:
    create(client, "t")
    create(client, "u")
    assert {topic.name for topic in client.call(METADATA, 12, {"topics": None}).topics} == {"t", "u"}
    assert client.call(METADATA, 12, {"topics": []}).topics == []
    assert {topic.name for topic in client.call(METADATA, 0, {"topics": []}).topics} == {"t", "u"}


def test_a_topic_is_found_by_its_id(client: RawClient) -> None:
    create(client, "t")
    topic_id = metadata(client, "t").topics[0].topic_id
    found = client.call(METADATA, 12, {"topics": [{"topic_id": topic_id, "name": None}]}).topics[0]
    assert (found.error_code, found.name) == (0, "t")
    unknown = client.call(METADATA, 12, {"topics": [{"topic_id": uuid.uuid4(), "name": None}]}).topics[0]
    assert (unknown.error_code, unknown.name) == (100, None)


def test_a_topic_that_is_asked_for_is_created_if_both_sides_want_it(client: RawClient) -> None:
    assert metadata(client, "t").topics[0].error_code == 3
    assert metadata(client, "t", auto=True).topics[0].error_code == 0
    assert metadata(client, "t").topics[0].error_code == 0


def test_a_topic_is_not_created_where_the_setting_says_no(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"auto.create.topics.enable": "false"}) as broker, RawClient(broker.port) as client:
        assert metadata(client, "t", auto=True).topics[0].error_code == 3


def test_created_topics_have_the_default_number_of_partitions(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"num.partitions": "5"}) as broker, RawClient(broker.port) as client:
        assert len(metadata(client, "t", auto=True).topics[0].partitions) == 5


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "é", "x" * 250, "a/b"])
def test_a_bad_topic_name_is_refused_everywhere(client: RawClient, name: str) -> None:
    assert metadata(client, name, auto=True).topics[0].error_code == 17
    assert client.call(CREATE_TOPICS, 7, new_topic(name)).topics[0].error_code == 17
    assert describe(client, 2, name).error_code == 17


def test_authorized_operations_are_told_if_asked_for(client: RawClient) -> None:
    create(client, "t")
    assert metadata(client, "t").topics[0].topic_authorized_operations == -(2**31)
    assert metadata(client, "t", include_topic_authorized_operations=True).topics[0].topic_authorized_operations == 3576


# Produce ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [-1, 1])
def test_records_are_appended_in_every_version(client: RawClient, version: int, acks: int) -> None:
    create(client, "t")
    for base_offset in (0, 3):
        answer = send(client, "t", batch(3), version=version, acks=acks)
        assert (answer.error_code, answer.base_offset) == (0, base_offset)
    assert read(client, "t").high_watermark == 6


def test_records_are_appended_by_topic_id(client: RawClient) -> None:
    create(client, "t")
    topic_id = metadata(client, "t").topics[0].topic_id
    for key, code in ((topic_id, 0), (uuid.uuid4(), 100)):
        data = {"topic_id": key, "partition_data": [{"index": 0, "records": batch(1)}]}
        answer = client.call(0, 13, {"transactional_id": None, "acks": -1, "timeout_ms": 100, "topic_data": [data]})
        assert answer.responses[0].topic_id == key
        assert answer.responses[0].partition_responses[0].error_code == code


def test_several_partitions_are_answered_each_on_its_own(client: RawClient) -> None:
    create(client, "t", 2)
    data = [{"index": index, "records": batch(1)} for index in (0, 1, 2, -1)] + [{"index": 0, "records": b"bad"}]
    request = {"acks": -1, "timeout_ms": 100, "topic_data": [{"name": "t", "partition_data": data}]}
    answer = client.call(0, 9, request)
    codes = [item.error_code for item in answer.responses[0].partition_responses]
    assert codes == [0, 0, 3, 3, 87]


@pytest.mark.parametrize("codec", range(5))
def test_every_codec_passes_through_untouched(client: RawClient, codec: int) -> None:
    create(client, "t")
    sent = batch(50, value=b"x" * 100, codec=codec)
    assert send(client, "t", sent).error_code == 0
    assert read(client, "t").records[16:] == sent[16:]


def _damaged(kind: str) -> bytes | None:
    good = bytearray(batch(2))
    match kind:
        case "null":
            return None
        case "empty":
            return b""
        case "crc":
            good[-1] ^= 1
        case "old magic":
            good[16] = 1
        case "new magic":
            good[16] = 3
        case "cut":
            del good[-3:]
        case "two batches":
            good *= 2
    return bytes(good)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("null", 87),
        ("empty", 87),
        ("crc", 2),
        ("old magic", 87),
        ("new magic", 2),
        ("cut", 87),
        ("two batches", 87),
    ],
)
def test_a_bad_batch_is_refused_and_the_next_good_one_is_taken(client: RawClient, kind: str, code: int) -> None:
    create(client, "t")
    assert send(client, "t", _damaged(kind)).error_code == code
    answer = send(client, "t", batch(1))
    assert (answer.error_code, answer.base_offset) == (0, 0)


def test_a_record_without_a_key_is_refused_on_a_compacted_topic(client: RawClient) -> None:
    create(client, "t", cleanup_policy="compact")
    for codec in range(5):
        assert send(client, "t", batch(2, key=None, codec=codec)).error_code == 87
    assert send(client, "t", batch(2)).error_code == 0


def test_a_batch_over_the_topics_limit_is_too_large(client: RawClient) -> None:
    create(client, "t", max_message_bytes="1000")
    assert send(client, "t", batch(1, value=b"x" * 1000)).error_code == 10
    assert send(client, "t", batch(1)).error_code == 0


def test_a_timestamp_too_far_in_the_future_is_refused(client: RawClient) -> None:
    create(client, "t", message_timestamp_after_max_ms="1000")
    from headrace import _kernel

    late = bytes(_kernel.build_batch([(int(time.time() * 1000) + 60_000, b"k", b"v", [])]))
    assert send(client, "t", late).error_code == 32


def test_the_brokers_clock_stamps_records_where_the_topic_says_so(client: RawClient) -> None:
    create(client, "t", message_timestamp_type="LogAppendTime")
    answer = send(client, "t", batch(1))
    assert abs(answer.log_append_time_ms - time.time() * 1000) < 10_000


def test_zstd_needs_a_version_that_knows_it(client: RawClient) -> None:
    create(client, "t")
    assert send(client, "t", batch(1, codec=4), version=6).error_code == 76
    assert send(client, "t", batch(1, codec=4), version=7).error_code == 0


def test_acks_that_do_not_exist_are_refused(client: RawClient) -> None:
    create(client, "t")
    assert send(client, "t", batch(1), acks=2).error_code == 21


def test_a_transactional_batch_of_nobody_is_refused(client: RawClient) -> None:
    create(client, "t")
    records = batch(1, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert send(client, "t", records).error_code == 53
    assert send(client, "t", records, transactional_id="x").error_code == 49


def test_clients_may_not_write_to_internal_topics(client: RawClient) -> None:
    client.call(10, 1, {"key": "g", "key_type": 0})
    assert send(client, "__consumer_offsets", batch(1)).error_code == 17


def test_an_idempotent_producer_is_never_written_twice(client: RawClient) -> None:
    create(client, "t")
    producer_id = client.call(INIT_PRODUCER_ID, 4, NEW_PRODUCER).producer_id

    def attempt(sequence: int, epoch: int = 0, producer: int = producer_id) -> tuple[int, int]:
        records = batch(2, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        answer = send(client, "t", records)
        return answer.error_code, answer.base_offset

    assert attempt(0) == (0, 0)
    assert attempt(0) == (0, 0)
    assert attempt(2) == (0, 2)
    assert attempt(0) == (0, 0)
    assert attempt(9) == (45, -1)
    assert attempt(0, epoch=1) == (0, 4)
    assert attempt(4, epoch=0) == (47, -1)


# Producer ids ----------------------------------------------------------------------------------------------------


def test_producer_ids_are_given_once_also_over_a_restart(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        with EmbeddedBroker(tmp_path) as broker, RawClient(broker.port) as client:
            for version in range(6):
                answer = client.call(INIT_PRODUCER_ID, version, NEW_PRODUCER)
                assert (answer.error_code, answer.producer_epoch) == (0, 0)
                seen.append(answer.producer_id)
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"producer_id": 5, "producer_epoch": -1}, 42),
        ({"producer_id": -1, "producer_epoch": 0}, 42),
        ({"transactional_id": ""}, 42),
        ({"transactional_id": "tx", "transaction_timeout_ms": 0}, 50),
    ],
)
def test_a_producer_id_is_refused_to_a_request_that_contradicts_itself(
    client: RawClient, request_: dict[str, Any], code: int
) -> None:
    assert client.call(INIT_PRODUCER_ID, 4, NEW_PRODUCER | request_).error_code == code


# Offsets ---------------------------------------------------------------------------------------------------------


def test_offsets_of_both_ends_and_of_the_largest_timestamp(client: RawClient) -> None:
    create(client, "t")
    for special in (-3, 0):
        assert list_offset(client, "t", special).offset == -1
    send(client, "t", batch(3))
    send(client, "t", batch(2))
    assert [list_offset(client, "t", special).offset for special in (-2, -1, -4, -5, -6)] == [0, 5, 0, -1, -1]
    latest = list_offset(client, "t", -3)
    assert latest.offset in (0, 3)
    assert abs(latest.timestamp - time.time() * 1000) < 60_000
    assert list_offset(client, "t", latest.timestamp + 100_000).offset == -1
    assert list_offset(client, "t", 1).offset == 0


@pytest.mark.parametrize("version", range(1, 12))
def test_the_ends_are_told_in_every_version(client: RawClient, version: int) -> None:
    create(client, "t")
    send(client, "t", batch(3))
    assert list_offset(client, "t", -1, version=version).offset == 3


@pytest.mark.parametrize(("version", "special"), [(6, -3), (7, -4), (8, -5), (10, -6), (11, -7)])
def test_special_values_need_a_version_that_knows_them(client: RawClient, version: int, special: int) -> None:
    create(client, "t")
    assert list_offset(client, "t", special, version=version).error_code == 35


def test_offsets_of_what_is_not_there(client: RawClient) -> None:
    create(client, "t")
    assert list_offset(client, "nope", -1).error_code == 3
    assert list_offset(client, "t", -1, partition=1).error_code == 3


def test_where_an_epoch_ended(client: RawClient) -> None:
    create(client, "t")
    send(client, "t", batch(3))

    def end(epoch: int, current: int = -1, topic: str = "t") -> tuple[int, int, int]:
        item = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
        answer = client.call(
            OFFSET_FOR_LEADER_EPOCH, 4, {"replica_id": -1, "topics": [{"topic": topic, "partitions": [item]}]}
        )
        found = answer.topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    assert end(0) == (0, 0, 3)
    assert end(7) == (0, -1, -1)
    assert end(0, current=9) == (75, -1, -1)
    assert end(0, topic="nope") == (3, -1, -1)


def test_deleted_records_are_out_of_range(client: RawClient) -> None:
    create(client, "t")
    send(client, "t", batch(5))
    send(client, "t", batch(5))

    def delete(offset: int, topic: str = "t", partition: int = 0) -> tuple[int, int]:
        item = {"partition_index": partition, "offset": offset}
        answer = client.call(DELETE_RECORDS, 2, {"topics": [{"name": topic, "partitions": [item]}], "timeout_ms": 100})
        found = answer.topics[0].partitions[0]
        return found.error_code, found.low_watermark

    assert delete(5) == (0, 5)
    assert delete(2) == (0, 5)
    assert delete(11) == (1, -1)
    assert delete(-2) == (1, -1)
    assert delete(1, partition=3) == (3, -1)
    assert delete(1, topic="nope") == (3, -1)
    assert read(client, "t", 4).error_code == 1
    assert list_offset(client, "t", -2).offset == 5
    assert delete(-1) == (0, 10)
    create(client, "c", cleanup_policy="compact")
    assert delete(0, topic="c") == (44, -1)


# Topics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_with_its_settings(client: RawClient, version: int) -> None:
    answer = client.call(CREATE_TOPICS, version, new_topic("t", 3, {"retention.ms": "1000"})).topics[0]
    assert answer.error_code == 0
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
        configs = {item.name: (item.value, item.config_source) for item in answer.configs}
        assert configs["retention.ms"] == ("1000", 1)
        assert configs["segment.bytes"] == ("1073741824", 5)
    if version >= 7:
        assert answer.topic_id == metadata(client, "t").topics[0].topic_id
    assert len(metadata(client, "t").topics[0].partitions) == 3


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"num_partitions": 0}, 37),
        ({"num_partitions": -2}, 37),
        ({"num_partitions": 10_001}, 44),
        ({"replication_factor": 0}, 38),
        ({"replication_factor": 2}, 38),
        ({"replication_factor": -1, "num_partitions": -1}, 0),
        ({"configs": [{"name": "nope", "value": "1"}]}, 40),
        ({"configs": [{"name": "retention.ms", "value": "x"}]}, 40),
        ({"configs": [{"name": "retention.ms", "value": None}]}, 40),
        ({"assignments": [{"partition_index": 0, "broker_ids": [1]}]}, 42),
        ({"num_partitions": -1, "assignments": [{"partition_index": 0, "broker_ids": [1]}]}, 42),
        (
            {
                "assignments": [{"partition_index": 0, "broker_ids": [1]}],
                "num_partitions": -1,
                "replication_factor": -1,
            },
            0,
        ),
        (
            {
                "assignments": [{"partition_index": 0, "broker_ids": [2]}],
                "num_partitions": -1,
                "replication_factor": -1,
            },
            39,
        ),
        (
            {
                "assignments": [{"partition_index": 1, "broker_ids": [1]}],
                "num_partitions": -1,
                "replication_factor": -1,
            },
            39,
        ),
        ({"name": "__cluster_metadata"}, 42),
    ],
)
def test_what_can_be_wrong_with_a_new_topic(client: RawClient, change: dict[str, Any], code: int) -> None:
    request = new_topic("t")
    request["topics"][0] |= change
    answer = client.call(CREATE_TOPICS, 7, request).topics[0]
    assert answer.error_code == code
    assert (answer.error_message is None) == (code == 0)


def test_a_topic_is_created_once(client: RawClient) -> None:
    create(client, "a.b")
    assert client.call(CREATE_TOPICS, 7, new_topic("a.b")).topics[0].error_code == 36
    assert client.call(CREATE_TOPICS, 7, new_topic("a_b")).topics[0].error_code == 17
    twice = new_topic("t")
    twice["topics"] *= 2
    assert [topic.error_code for topic in client.call(CREATE_TOPICS, 7, twice).topics] == [42]


def test_a_validated_topic_is_not_created(client: RawClient) -> None:
    assert client.call(CREATE_TOPICS, 7, new_topic("t") | {"validate_only": True}).topics[0].error_code == 0
    assert metadata(client, "t").topics[0].error_code == 3


def test_a_deleted_topic_is_gone_and_a_new_one_is_another(client: RawClient) -> None:
    create(client, "t")
    send(client, "t", batch(3))
    old = metadata(client, "t").topics[0].topic_id
    assert client.call(DELETE_TOPICS, 1, {"topic_names": ["t"], "timeout_ms": 100}).responses[0].error_code == 0
    assert client.call(DELETE_TOPICS, 5, {"topic_names": ["t"], "timeout_ms": 100}).responses[0].error_code == 3
    create(client, "t")
    new = metadata(client, "t").topics[0].topic_id
    assert new != old
    assert list_offset(client, "t", -1).offset == 0
    answer = client.call(DELETE_TOPICS, 6, {"topics": [{"name": None, "topic_id": old}], "timeout_ms": 100})
    assert answer.responses[0].error_code == 100
    answer = client.call(DELETE_TOPICS, 6, {"topics": [{"name": None, "topic_id": new}], "timeout_ms": 100})
    assert (answer.responses[0].error_code, answer.responses[0].name) == (0, "t")


@pytest.mark.parametrize("topic", [{"name": None, "topic_id": NO_ID}, {"name": "t", "topic_id": uuid.uuid4()}])
def test_a_topic_is_deleted_by_one_of_name_and_id(client: RawClient, topic: dict[str, Any]) -> None:
    create(client, "t")
    answer = client.call(DELETE_TOPICS, 6, {"topics": [topic], "timeout_ms": 100})
    assert answer.responses[0].error_code == 42


def test_deletion_can_be_switched_off(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"delete.topic.enable": "false"}) as broker, RawClient(broker.port) as client:
        create(client, "t")
        assert client.call(DELETE_TOPICS, 5, {"topic_names": ["t"], "timeout_ms": 100}).responses[0].error_code == 73


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (3, None, 0),
        (2, None, 37),
        (1, None, 37),
        (4, [[1], [1]], 0),
        (4, [[1]], 39),
        (3, [[7]], 39),
        (20_000, None, 37),
    ],
)
def test_partitions_are_added(client: RawClient, count: int, assignments: list[list[int]] | None, code: int) -> None:
    create(client, "t", 2)
    given = None if assignments is None else [{"broker_ids": ids} for ids in assignments]
    request = {"topics": [{"name": "t", "count": count, "assignments": given}], "timeout_ms": 100}
    assert client.call(CREATE_PARTITIONS, 3, request | {"validate_only": True}).results[0].error_code == code
    assert len(metadata(client, "t").topics[0].partitions) == 2
    assert client.call(CREATE_PARTITIONS, 3, request | {"validate_only": False}).results[0].error_code == code
    assert len(metadata(client, "t").topics[0].partitions) == (count if code == 0 else 2)


# Settings --------------------------------------------------------------------------------------------------------


def describe(client: RawClient, kind: int, name: str, keys: list[str] | None = None, **more: Any) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    request = {"resources": [resource], "include_synonyms": True, "include_documentation": True, **more}
    return client.call(DESCRIBE_CONFIGS, 4, request).results[0]


def change(client: RawClient, kind: int, name: str, *changes: tuple[str, int, str | None], **more: Any) -> int:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    request = {"resources": [resource], "validate_only": False, **more}
    code: int = client.call(INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0].error_code
    return code


def value(client: RawClient, name: str, topic: str = "t") -> tuple[str, int]:
    (config,) = describe(client, 2, topic, [name]).configs
    return config.value, config.config_source


def test_every_setting_of_a_topic_is_described(client: RawClient) -> None:
    create(client, "t", retention_ms="1000")
    configs = {item.name: item for item in describe(client, 2, "t").configs}
    assert len(configs) == 39
    assert configs["retention.ms"].value == "1000"
    assert [(s.name, s.value, s.source) for s in configs["retention.ms"].synonyms] == [("retention.ms", "1000", 1)]
    assert [(s.name, s.value, s.source) for s in configs["segment.bytes"].synonyms] == [
        ("log.segment.bytes", "1073741824", 5)
    ]
    assert configs["cleanup.policy"].config_type == 7
    assert all(config.documentation for config in configs.values())


def test_a_nodes_default_is_shown_as_static(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"log.retention.hours": "2"}) as broker, RawClient(broker.port) as client:
        create(client, "t")
        assert value(client, "retention.ms") == (str(2 * 3_600_000), 4)


def test_every_setting_of_the_broker_is_described(broker: EmbeddedBroker, client: RawClient) -> None:
    configs = {item.name: item for item in describe(client, 4, "1").configs}
    assert configs["num.partitions"].value == "1"
    assert configs["num.partitions"].read_only
    assert not configs["log.retention.ms"].read_only
    assert configs["node.id"].value == "1"
    assert configs["listeners"].value == f"PLAINTEXT://127.0.0.1:{broker.port}"
    assert configs["log.dirs"].value.endswith("data")
    assert describe(client, 4, "").configs == []


@pytest.mark.parametrize(
    ("kind", "name", "code"), [(2, "nope", 3), (2, "a b", 17), (4, "2", 42), (4, "x", 42), (3, "x", 42), (16, "x", 0)]
)
def test_what_cannot_be_described(client: RawClient, kind: int, name: str, code: int) -> None:
    assert describe(client, kind, name).error_code == code


def test_settings_are_set_unset_appended_and_subtracted(client: RawClient) -> None:
    create(client, "t")
    assert change(client, 2, "t", ("retention.ms", 0, "5000"), ("cleanup.policy", 2, "compact")) == 0
    assert value(client, "retention.ms") == ("5000", 1)
    assert value(client, "cleanup.policy") == ("delete,compact", 1)
    assert change(client, 2, "t", ("retention.ms", 1, None), ("cleanup.policy", 3, "delete")) == 0
    assert value(client, "retention.ms") == ("604800000", 5)
    assert value(client, "cleanup.policy") == ("compact", 1)
    assert send(client, "t", batch(1, key=None)).error_code == 87


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", 0, "x")], 40),
        ([("nope", 0, "1")], 40),
        ([("retention.ms", 0, None)], 42),
        ([("retention.ms", 2, "1")], 40),
        ([("retention.ms", 9, "1")], 42),
        ([("retention.ms", 0, "1"), ("retention.ms", 0, "2")], 42),
        ([("nope", 1, None)], 0),
    ],
)
def test_a_change_that_cannot_be_made_changes_nothing(client: RawClient, changes: list[Any], code: int) -> None:
    create(client, "t", retention_ms="77")
    assert change(client, 2, "t", ("segment.ms", 0, "5"), *changes) == code
    assert value(client, "retention.ms") == ("77", 1)


def test_a_validated_change_is_not_made(client: RawClient) -> None:
    create(client, "t")
    assert change(client, 2, "t", ("retention.ms", 0, "5"), validate_only=True) == 0
    assert change(client, 2, "t", ("retention.ms", 0, "x"), validate_only=True) == 40
    assert value(client, "retention.ms") == ("604800000", 5)


def test_alter_configs_replaces_all_that_is_set(client: RawClient) -> None:
    create(client, "t", retention_ms="5", segment_ms="7")
    resource = {"resource_type": 2, "resource_name": "t", "configs": [{"name": "retention.ms", "value": "9"}]}
    assert client.call(ALTER_CONFIGS, 2, {"resources": [resource]}).responses[0].error_code == 0
    assert value(client, "retention.ms") == ("9", 1)
    assert value(client, "segment.ms") == ("604800000", 5)


def test_settings_of_a_topic_survive_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.port) as client:
        create(client, "t")
        change(client, 2, "t", ("retention.ms", 0, "5"))
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.port) as client:
        assert value(client, "retention.ms") == ("5", 1)


def test_a_brokers_default_of_topics_changes_at_once_and_survives_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"log.retention.ms": "3"}) as broker, RawClient(broker.port) as client:
        create(client, "t")
        assert value(client, "retention.ms") == ("3", 4)
        assert change(client, 4, "", ("log.retention.ms", 0, "4")) == 0
        assert value(client, "retention.ms") == ("4", 3)
        assert change(client, 4, "1", ("log.retention.ms", 0, "5")) == 0
        assert value(client, "retention.ms") == ("5", 2)
        assert broker.look(lambda b: b.store.topics["t"].partitions[0].config.retention_ms) == 5
    with EmbeddedBroker(tmp_path, {"log.retention.ms": "3"}) as broker, RawClient(broker.port) as client:
        assert value(client, "retention.ms") == ("5", 2)
        assert broker.look(lambda b: b.store.topics["t"].config.retention_ms) == 5
        assert change(client, 4, "1", ("log.retention.ms", 1, None)) == 0
        assert value(client, "retention.ms") == ("4", 3)


@pytest.mark.parametrize(
    ("name", "setting", "code"),
    [("1", "num.partitions", 42), ("2", "log.retention.ms", 42), ("x", "log.retention.ms", 42), ("1", "nope", 40)],
)
def test_what_cannot_be_changed_of_the_broker(client: RawClient, name: str, setting: str, code: int) -> None:
    assert change(client, 4, name, (setting, 0, "4")) == code


# The rest --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_one_node(broker: EmbeddedBroker, client: RawClient, version: int) -> None:
    answer = client.call(60, version, {"include_cluster_authorized_operations": True})
    assert (answer.error_code, answer.controller_id) == (0, 1)
    assert [(node.broker_id, node.host, node.port) for node in answer.brokers] == [(1, "127.0.0.1", broker.port)]
    assert answer.cluster_authorized_operations == 8096
    assert len(answer.cluster_id) == 22


def test_partitions_are_described_in_pages(client: RawClient) -> None:
    create(client, "a", 3)
    create(client, "b", 2)

    def page(cursor: Any = None, limit: int = 2) -> tuple[list[tuple[str, list[int]]], Any]:
        answer = client.call(75, 0, {"topics": [], "response_partition_limit": limit, "cursor": cursor})
        found = [(topic.name, [item.partition_index for item in topic.partitions]) for topic in answer.topics]
        return found, answer.next_cursor

    seen, cursor = page()
    assert seen == [("a", [0, 1])]
    seen, cursor = page(cursor)
    assert seen == [("a", [2]), ("b", [0])]
    seen, cursor = page(cursor)
    assert seen == [("b", [1])]
    assert cursor is None


def test_unknown_partitions_are_described_as_such(client: RawClient) -> None:
    request = {"topics": [{"name": "nope"}, {"name": "a b"}], "response_partition_limit": 10, "cursor": None}
    assert [topic.error_code for topic in client.call(75, 0, request).topics] == [17, 3]


def test_the_data_folder_is_described(client: RawClient, broker: EmbeddedBroker) -> None:
    create(client, "t", 2)
    send(client, "t", batch(10))
    for version in range(1, 6):
        (folder,) = client.call(35, version, {"topics": None}).results
        sizes = {item.partition_index: item.partition_size for item in folder.topics[0].partitions}
        assert sizes[0] > 0
        assert sizes[1] == 0
    assert folder.usable_bytes > 0
    (folder,) = client.call(
        35, 4, {"topics": [{"topic": "t", "partitions": [1]}, {"topic": "u", "partitions": [0]}]}
    ).results
    assert [[item.partition_index for item in topic.partitions] for topic in folder.topics] == [[1]]


def test_resources_with_settings_are_listed(client: RawClient) -> None:
    create(client, "t")
    assert client.call(74, 0, {}).config_resources == []
    listed = client.call(74, 1, {"resource_types": []}).config_resources
    assert {(item.resource_type, item.resource_name) for item in listed} == {(2, "t"), (4, "1"), (8, "1")}
    assert client.call(74, 1, {"resource_types": [3]}).error_code == 35


def test_there_are_no_acls(client: RawClient) -> None:
    assert client.call(29, 3, {}).error_code == 54
    assert [item.error_code for item in client.call(30, 3, {"creations": [{}]}).results] == [54]
    assert [item.error_code for item in client.call(31, 3, {"filters": [{}]}).filter_results] == [54]


def test_nothing_is_elected_or_moved(client: RawClient) -> None:
    create(client, "t")
    partitions = [{"topic": "t", "partitions": [0, 9]}]
    answer = client.call(43, 2, {"election_type": 0, "topic_partitions": partitions, "timeout_ms": 100})
    assert [item.error_code for item in answer.replica_election_results[0].partition_result] == [84, 3]
    assert client.call(46, 0, {"timeout_ms": 100, "topics": None}).topics == []

    def move(replicas: list[int] | None, topic: str = "t") -> int:
        item = {"partition_index": 0, "replicas": replicas}
        answer = client.call(45, 1, {"timeout_ms": 100, "topics": [{"name": topic, "partitions": [item]}]})
        code: int = answer.responses[0].partitions[0].error_code
        return code

    assert [move([1]), move([2]), move(None), move([1], "nope")] == [0, 39, 85, 3]
