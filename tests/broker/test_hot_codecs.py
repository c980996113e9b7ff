"""The hand-written codecs of Produce, Fetch, ShareFetch and ShareAcknowledge against kio's, byte for byte."""

import random

import pytest
from kio.static.constants import EntityType

from headrace.broker import wire
from headrace.broker.codecs import fetch, produce, share
from headrace.broker.primitives import NO_UUID
from headrace.broker.shares.window import Acquired
from headrace.errors import InvalidRequest
from tests.broker.kio_messages import encode, entity, random_message

ROUNDS = 60
HOT = [(produce, 0, version) for version in range(3, 14)] + [(fetch, 1, version) for version in range(4, 19)]


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_requests_are_read_as_kio_does(version: int) -> None:
    rng = random.Random(version)
    for _ in range(ROUNDS):
        message = random_message(entity(0, version, EntityType.request), rng)
        body = encode(message)
        frame = memoryview(bytearray(b"head" + body))
        request = produce.decode_request(version, frame, 4)
        assert request.transactional_id == message.transactional_id
        assert request.acks == message.acks
        assert request.timeout_ms == wire.decode_request(0, version, body).timeout_ms
        assert len(request.topics) == len(message.topic_data)
        for (key, partitions), topic in zip(request.topics, message.topic_data, strict=True):
            assert key == ((topic.topic_id or NO_UUID).bytes if version >= 13 else topic.name)
            assert [index for index, _, _ in partitions] == [partition.index for partition in topic.partition_data]
            for (_, start, end), partition in zip(partitions, topic.partition_data, strict=True):
                records = None if start == produce.NO_RECORDS else bytes(frame[start:end])
                assert records == partition.records


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("message", [None, "", "the disk is full", "é" * 200])
def test_produce_responses_are_written_as_kio_does(version: int, message: str | None) -> None:
    rng = random.Random(version)
    for _ in range(ROUNDS // 4):
        topics = [
            (
                rng.randbytes(16) if version >= 13 else f"topic-{rng.random()}",
                [
                    produce.PartitionResult(
                        index, rng.randrange(0, 90), *(rng.getrandbits(60) for _ in range(3)), message
                    )
                    for index in range(rng.choice((0, 1, 2, 200)))
                ],
            )
            for _ in range(rng.randrange(0, 3))
        ]
        ours = produce.encode_response(version, 7, topics, 5)
        decoded = wire.decode_response(0, version, ours[9 if version >= 9 else 8 :])
        assert wire.encode_response(0, version, 7, decoded) == ours
        for (key, results), topic in zip(topics, decoded.responses, strict=True):
            assert key == (topic.topic_id.bytes if version >= 13 else topic.name)
            for result, partition in zip(results, topic.partition_responses, strict=True):
                assert (result.partition, result.error_code, result.base_offset, result.log_append_time_ms) == (
                    partition.index,
                    partition.error_code,
                    partition.base_offset,
                    partition.log_append_time_ms,
                )
                if version >= 5:
                    assert partition.log_start_offset == result.log_start_offset
                if version >= 8:
                    assert partition.error_message == message


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_requests_are_read_as_kio_does(version: int) -> None:
    rng = random.Random(version)
    for _ in range(ROUNDS):
        body = encode(random_message(entity(1, version, EntityType.request), rng))
        expected = wire.decode_request(1, version, body)
        request = fetch.decode_request(version, memoryview(b"h" + body), 1)
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (
            expected.max_wait_ms,
            expected.min_bytes,
            expected.max_bytes,
        )
        assert request.isolation == expected.isolation_level
        assert (request.session_id, request.session_epoch) == (expected.session_id, expected.session_epoch)
        assert request.replica_id == (expected.replica_id if version < 15 else expected.replica_state.replica_id)
        for (key, wishes), topic in zip(request.topics, expected.topics, strict=True):
            assert key == (topic.topic_id.bytes if version >= 13 else topic.topic)
            assert wishes == [
                (
                    partition.partition,
                    partition.current_leader_epoch,
                    partition.fetch_offset,
                    partition.last_fetched_epoch,
                    partition.partition_max_bytes,
                )
                for partition in topic.partitions
            ]
        assert len(request.forgotten) == len(expected.forgotten_topics_data)
        for (key, indexes), topic in zip(request.forgotten, expected.forgotten_topics_data, strict=True):
            assert key == (topic.topic_id.bytes if version >= 13 else topic.topic)
            assert indexes == topic.partitions


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_responses_are_written_as_kio_does(version: int) -> None:
    rng = random.Random(version)
    for _ in range(ROUNDS):
        topics = [
            (
                rng.randbytes(16) if version >= 13 else f"topic-{rng.random()}",
                [
                    fetch.PartitionAnswer(
                        index,
                        rng.randrange(0, 90),
                        *(rng.getrandbits(60) for _ in range(3)),
                        rng.choice((None, [], [(1, 2)], [(rng.getrandbits(60), 4)] * 150)),
                        rng.randbytes(rng.choice((0, 1, 130, 70_000))),
                    )
                    for index in range(rng.choice((0, 1, 2, 30)))
                ],
            )
            for _ in range(rng.randrange(0, 3))
        ]
        buffers = fetch.encode_response(version, 7, 11, 13, topics, 5)
        ours = b"".join(buffers)
        decoded = wire.decode_response(1, version, ours[9 if version >= 12 else 8 :])
        assert wire.encode_response(1, version, 7, decoded) == ours
        for (key, answers), topic in zip(topics, decoded.responses, strict=True):
            assert key == (topic.topic_id.bytes if version >= 13 else topic.topic)
            for answer, partition in zip(answers, topic.partitions, strict=True):
                assert answer.records == partition.records
                assert (answer.partition, answer.error_code) == (partition.partition_index, partition.error_code)
                assert (answer.high_watermark, answer.last_stable_offset) == (
                    partition.high_watermark,
                    partition.last_stable_offset,
                )
                aborted = partition.aborted_transactions
                assert answer.aborted == (
                    aborted if aborted is None else [(a.producer_id, a.first_offset) for a in aborted]
                )


@pytest.mark.parametrize(
    ("codec", "api_key", "version"), [(produce, 0, v) for v in range(3, 14)] + [(fetch, 1, v) for v in range(4, 19)]
)
def test_a_hot_request_cut_anywhere_is_refused(codec: object, api_key: int, version: int) -> None:
    rng = random.Random(version)
    whole = encode(random_message(entity(api_key, version, EntityType.request), rng))
    for size in range(0, len(whole), max(1, len(whole) // 200)):
        with pytest.raises(InvalidRequest):
            codec.decode_request(version, memoryview(whole[:size]), 0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("codec", "api_key", "version"), [(produce, 0, v) for v in range(3, 14)] + [(fetch, 1, v) for v in range(4, 19)]
)
def test_a_mutated_hot_request_is_read_or_refused(codec: object, api_key: int, version: int) -> None:
    rng = random.Random(version)
    for _ in range(300):
        body = bytearray(encode(random_message(entity(api_key, version, EntityType.request), rng)))
        for _ in range(rng.randrange(1, 5)):
            body[rng.randrange(len(body))] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.getrandbits(8)))
        try:
            codec.decode_request(version, memoryview(body), 0)  # type: ignore[attr-defined]
        except InvalidRequest:
            continue


@pytest.mark.parametrize("version", [1, 2])
def test_share_requests_are_read_as_kio_does(version: int) -> None:
    rng = random.Random(version)
    for api_key, decode in ((78, share.decode_fetch_request), (79, share.decode_ack_request)):
        for _ in range(ROUNDS // 2):
            body = encode(random_message(entity(api_key, version, EntityType.request), rng))
            expected = wire.decode_request(api_key, version, body)
            request = decode(version, memoryview(b"h" + body), 1)
            assert (request.group, request.member, request.epoch) == (
                expected.group_id,
                expected.member_id,
                expected.share_session_epoch,
            )
            assert request.renews == expected.is_renew_ack
            assert [tuple(part) for part in request.partitions] == [
                (
                    topic.topic_id.bytes,
                    partition.partition_index,
                    [
                        (one.first_offset, one.last_offset, bytes(kind & 0xFF for kind in one.acknowledge_types))
                        for one in partition.acknowledgement_batches
                    ],
                )
                for topic in expected.topics
                for partition in topic.partitions
            ]
            if isinstance(request, share.FetchRequest):
                assert request[3:9] == (
                    expected.max_wait_ms,
                    expected.min_bytes,
                    expected.max_bytes,
                    expected.max_records,
                    expected.batch_size,
                    expected.share_acquire_mode,
                )
                assert request.forgotten == [
                    (topic.topic_id.bytes, index)
                    for topic in expected.forgotten_topics_data
                    for index in topic.partitions
                ]
            for cut in range(0, len(body), 31):
                with pytest.raises(InvalidRequest):
                    decode(version, memoryview(body[:cut]), 0)


@pytest.mark.parametrize("version", [1, 2])
def test_share_responses_are_written_as_kio_does(version: int) -> None:
    rng = random.Random(version)
    for _ in range(ROUNDS // 4):
        places = [(rng.choice((b"a" * 16, b"b" * 16)), index) for index in range(rng.choice((0, 1, 3, 20)))]
        message = rng.choice((None, "", "no", "é" * 100))
        records = [memoryview(rng.randbytes(size)) for size in rng.choice(((), (5,), (7, 30_000)))]
        acquired = [Acquired(n * 10, n * 10 + 5, n % 5) for n in range(rng.choice((0, 1, 200)))]
        fetched = [share.FetchAnswer(*place, 0, message, 7, message, records, acquired) for place in places]
        frame = b"".join(share.encode_fetch_response(7, 3, message, 30_000, fetched))
        decoded = wire.decode_response(78, version, frame[9:])
        assert wire.encode_response(78, version, 7, decoded) == frame
        parts = [(topic.topic_id.bytes, part) for topic in decoded.responses for part in topic.partitions]
        assert sorted((topic_id, part.partition_index) for topic_id, part in parts) == sorted(places)
        for _, part in parts:
            assert part.records == b"".join(records)
            assert [
                (one.first_offset, one.last_offset, one.delivery_count) for one in part.acquired_records
            ] == acquired
        settled = [share.AckAnswer(*place, 121, message) for place in places]
        answer = share.encode_ack_response(version, 7, 3, message, 30_000, settled)
        decoded = wire.decode_response(79, version, answer[9:])
        assert wire.encode_response(79, version, 7, decoded) == answer
        assert sum(len(topic.partitions) for topic in decoded.responses) == len(places)
