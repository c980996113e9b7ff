import threading
import time
import uuid

import pytest

from headrace.testing.broker import EmbeddedBroker
from tests.broker.messages import FETCH, METADATA, PRODUCE, batch, create, fetch, list_offset, produce, read, send, wish
from tests.broker.raw_client import RawClient


def test_a_fetch_inside_a_batch_gets_the_whole_batch(client: RawClient) -> None:
    create(client, "t")
    send(client, "t", batch(5))
    whole = read(client, "t", 0).records
    assert read(client, "t", 3).records == whole


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_reads_the_same_records(client: RawClient, version: int) -> None:
    create(client, "t")
    sent = batch(3)
    send(client, "t", sent)
    answer = read(client, "t", version=version)
    assert answer.error_code == 0
    assert answer.high_watermark == 3
    assert answer.records[12 + 4 :] == sent[12 + 4 :]


@pytest.mark.parametrize("version", range(13, 19))
def test_topics_are_read_by_id_from_version_13_on(client: RawClient, version: int) -> None:
    create(client, "t")
    send(client, "t", batch(3))
    topic_id = client.call(METADATA, 12, {"topics": [{"name": "t", "topic_id": uuid.UUID(int=0)}]}).topics[0].topic_id
    request = fetch({}) | {"topics": [{"topic_id": topic_id, "partitions": [wish()]}]}
    answer = client.call(FETCH, version, request)
    assert answer.responses[0].topic_id == topic_id
    assert answer.responses[0].partitions[0].high_watermark == 3
    assert len(answer.responses[0].partitions[0].records) > 0


def test_an_unknown_topic_id_is_an_error_of_its_own(client: RawClient) -> None:
    request = fetch({}) | {"topics": [{"topic_id": uuid.uuid4(), "partitions": [wish()]}]}
    assert client.call(FETCH, 13, request).responses[0].partitions[0].error_code == 100


@pytest.mark.parametrize(("offset", "code"), [(-1, 1), (2, 0), (3, 1)])
def test_reading_beyond_either_end_is_out_of_range(client: RawClient, offset: int, code: int) -> None:
    create(client, "t")
    send(client, "t", batch(2))
    assert read(client, "t", offset).error_code == code


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 0), (1, 75)])
def test_a_leader_epoch_from_the_future_is_unknown(client: RawClient, epoch: int, code: int) -> None:
    create(client, "t")
    assert read(client, "t", epoch=epoch).error_code == code


def test_a_leader_epoch_from_before_a_crash_is_fenced(broker: EmbeddedBroker, client: RawClient) -> None:
    create(client, "t")
    broker.look(lambda b: setattr(b.store.topics["t"].partitions[0], "leader_epoch", 3))
    assert read(client, "t", epoch=2).error_code == 74
    assert list_offset(client, "t", -1, current_leader_epoch=2).error_code == 74


def test_the_first_batch_is_returned_whole_however_small_the_limit(client: RawClient) -> None:
    create(client, "t", 2)
    for partition in (0, 1):
        send(client, "t", batch(1, value=b"x" * 1000), partition=partition)
    answer = client.call(FETCH, 11, fetch({"t": [wish(0, max_bytes=1), wish(1, max_bytes=1)]}, max_bytes=1))
    sizes = [len(partition.records) for partition in answer.responses[0].partitions]
    assert sizes[0] > 1000
    assert sizes[1] == 0


def test_max_bytes_bounds_the_whole_answer(client: RawClient) -> None:
    create(client, "t", 4)
    for partition in range(4):
        for _ in range(4):
            send(client, "t", batch(1, value=b"x" * 1000), partition=partition)
    answer = client.call(FETCH, 11, fetch({"t": [wish(p) for p in range(4)]}, max_bytes=6000))
    sizes = [len(partition.records) for partition in answer.responses[0].partitions]
    assert 4000 < sizes[0] < 6000
    assert sum(sizes) <= 6000


def test_a_replicas_fetch_is_refused(client: RawClient) -> None:
    create(client, "t")
    assert read(client, "t", replica_id=3).error_code == 6


def test_a_fetch_with_nothing_to_read_is_answered_after_max_wait(client: RawClient) -> None:
    create(client, "t")
    started = time.monotonic()
    answer = read(client, "t", wait_ms=200)
    assert answer.error_code == 0
    assert answer.records == b""
    assert 0.19 < time.monotonic() - started < 2


def test_a_waiting_fetch_is_answered_when_a_record_comes(broker: EmbeddedBroker, client: RawClient) -> None:
    create(client, "t")
    with RawClient(broker.port) as reader:
        sent_at = reader.send(FETCH, 11, fetch({"t": [wish()]}, wait_ms=20_000))
        _wait_for_listener(broker, "t")
        started = time.monotonic()
        send(client, "t", batch(1))
        answer = reader.receive(FETCH, 11, sent_at)
        assert time.monotonic() - started < 5
        assert len(answer.responses[0].partitions[0].records) > 0
    assert broker.look(lambda b: len(b.store.topics["t"].partitions[0].listeners)) == 0


def test_a_waiting_fetch_waits_for_min_bytes(broker: EmbeddedBroker, client: RawClient) -> None:
    create(client, "t")
    with RawClient(broker.port) as reader:
        sent_at = reader.send(FETCH, 11, fetch({"t": [wish()]}, wait_ms=20_000, min_bytes=5000))
        for _ in range(8):
            send(client, "t", batch(1, value=b"x" * 1000))
        answer = reader.receive(FETCH, 11, sent_at)
        assert len(answer.responses[0].partitions[0].records) >= 5000


def test_a_waiting_fetch_learns_that_its_topic_was_deleted(broker: EmbeddedBroker, client: RawClient) -> None:
    create(client, "t")
    with RawClient(broker.port) as reader:
        sent_at = reader.send(FETCH, 11, fetch({"t": [wish()]}, wait_ms=20_000))
        _wait_for_listener(broker, "t")
        client.call(20, 5, {"topic_names": ["t"], "timeout_ms": 1000})
        assert reader.receive(FETCH, 11, sent_at).responses[0].partitions[0].error_code == 3


def test_a_waiting_fetch_holds_back_later_responses_but_not_later_requests(
    broker: EmbeddedBroker, client: RawClient
) -> None:
    create(client, "t")
    waiting = client.send(FETCH, 11, fetch({"t": [wish()]}, wait_ms=20_000))
    following = client.send(PRODUCE, 9, produce("t", batch(1)))
    assert len(client.receive(FETCH, 11, waiting).responses[0].partitions[0].records) > 0
    assert client.receive(PRODUCE, 9, following).responses[0].partition_responses[0].error_code == 0


def test_a_lost_connection_takes_its_waiting_fetches_with_it(broker: EmbeddedBroker, client: RawClient) -> None:
    create(client, "t")
    reader = RawClient(broker.port)
    reader.send(FETCH, 11, fetch({"t": [wish()]}, wait_ms=60_000))
    _wait_for_listener(broker, "t")
    reader.close()
    _wait_until(lambda: broker.look(lambda b: not b.store.topics["t"].partitions[0].listeners))


def test_a_fetch_that_waits_for_room_is_answered_once_there_is_some(broker: EmbeddedBroker, client: RawClient) -> None:
    for topic in ("first", "large", "last"):
        create(client, topic, max_message_bytes="4000000")
    with RawClient(broker.port) as reader:
        sent = [
            reader.send(FETCH, 11, fetch({topic: [wish()]}, wait_ms=30_000)) for topic in ("first", "large", "last")
        ]
        _wait_for_listener(broker, "last")
        send(client, "large", batch(1, value=b"x" * 3_000_000))
        _wait_until(lambda: broker.look(lambda b: not b.store.topics["large"].partitions[0].listeners))
        send(client, "last", batch(1))
        started = time.monotonic()
        send(client, "first", batch(1))
        answers = [reader.receive(FETCH, 11, at) for at in sent]
        assert time.monotonic() - started < 10
        assert all(answer.responses[0].partitions[0].records for answer in answers)


def test_many_waiting_fetches_are_all_answered(broker: EmbeddedBroker, client: RawClient) -> None:
    create(client, "t")
    got = []

    def follow() -> None:
        with RawClient(broker.port) as reader:
            got.append(len(read(reader, "t", wait_ms=20_000).records))

    readers = [threading.Thread(target=follow) for _ in range(20)]
    for reader in readers:
        reader.start()
    send(client, "t", batch(1))
    for reader in readers:
        reader.join()
    assert len(got) == 20
    assert all(got)


def _wait_for_listener(broker: EmbeddedBroker, topic: str) -> None:
    _wait_until(lambda: broker.look(lambda b: bool(b.store.topics[topic].partitions[0].listeners)))


def _wait_until(condition: object, patience: float = 10.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
