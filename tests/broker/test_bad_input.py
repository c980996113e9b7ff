"""What a broken or hostile client can send: it gets a clear end, and nobody else notices."""

import logging
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.broker.primitives import MAX_ELEMENTS, unsigned_varint
from headrace.testing.broker import EmbeddedBroker
from tests.broker.messages import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    batch,
    create,
    fetch,
    produce,
    read,
    send,
    wish,
)
from tests.broker.raw_client import RawClient


def wait_until(condition: Callable[[], bool], patience: float = 10.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def assert_serves(broker: EmbeddedBroker) -> None:
    """A new client is served as if nothing had happened, and no other connection is left."""
    wait_until(lambda: broker.look(lambda b: len(b.server.connections)) == 0)
    assert broker.look(lambda b: b.server.reserved_bytes) == 0
    with RawClient(broker.port) as client:
        assert client.call(METADATA, 12, {"topics": None}).brokers[0].node_id == 1


def send_and_see_it_closed(broker: EmbeddedBroker, data: bytes) -> None:
    with RawClient(broker.port) as client:
        client.socket.sendall(data)
        assert client.is_closed()
    assert_serves(broker)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, 100 * 1024 * 1024 + 1, 2**31 - 1])
def test_a_frame_of_an_impossible_size_ends_the_connection(broker: EmbeddedBroker, size: int) -> None:
    send_and_see_it_closed(broker, struct.pack(">i", size) + b"x" * 100)


def test_garbage_ends_the_connection(broker: EmbeddedBroker) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"\0\0\0\x10" + b"\xff" * 16):
        send_and_see_it_closed(broker, data)


@pytest.mark.parametrize(
    ("api_key", "version"), [(-1, 0), (4, 0), (999, 0), (32767, 0), (3, 14), (3, -1), (0, 2), (1, 3)]
)
def test_an_unknown_api_or_version_ends_the_connection(broker: EmbeddedBroker, api_key: int, version: int) -> None:
    frame = struct.pack(">hhihb", api_key, version, 1, -1, 0) + b"\0" * 20
    send_and_see_it_closed(broker, struct.pack(">i", len(frame)) + frame)


def test_a_header_with_a_client_id_longer_than_its_frame_ends_the_connection(broker: EmbeddedBroker) -> None:
    for api_key, version in ((0, 9), (1, 12), (3, 9), (18, 3)):
        frame = struct.pack(">hhih", api_key, version, 1, 32767) + b"abc"
        send_and_see_it_closed(broker, struct.pack(">i", len(frame)) + frame)


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (METADATA, 1, struct.pack(">i", 2**31 - 1)),
        (METADATA, 1, struct.pack(">i", -2)),
        (METADATA, 9, unsigned_varint(2**32 - 1)),
        (METADATA, 9, b"\xff" * 20),
        (API_VERSIONS, 3, b"\x01\x01" + unsigned_varint(20_000_000) + b"\x05\x00" * 50),
        (PRODUCE, 3, struct.pack(">hhii", -1, 1, 0, 2**31 - 1)),
        (PRODUCE, 9, b"\x00" + struct.pack(">hi", 1, 0) + unsigned_varint(2**32 - 1)),
        (PRODUCE, 3, struct.pack(">hhiih", -1, 1, 0, 1, 1) + b"t" + struct.pack(">iii", 1, 0, 2**31 - 1)),
        (FETCH, 4, struct.pack(">iiiibi", -1, 0, 0, 0, 0, 2**31 - 1)),
        (FETCH, 12, struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, 0) + unsigned_varint(2**32 - 1)),
    ],
)
def test_a_count_or_length_beyond_the_frame_ends_the_connection(
    broker: EmbeddedBroker, api_key: int, version: int, body: bytes
) -> None:
    with RawClient(broker.port) as client:
        client.socket.sendall(client.frame_of(api_key, version, body))
        assert client.is_closed()
    assert_serves(broker)


def test_a_bomb_of_tagged_fields_is_refused_before_it_costs_memory(broker: EmbeddedBroker) -> None:
    count = MAX_ELEMENTS + 1
    with RawClient(broker.port) as client:
        client.socket.sendall(
            client.frame_of(API_VERSIONS, 3, b"\x01\x01" + unsigned_varint(count) + b"\x05\x00" * count)
        )
        assert client.is_closed()
    assert_serves(broker)


def test_a_bomb_of_tagged_fields_in_the_header_is_refused(broker: EmbeddedBroker) -> None:
    tags = unsigned_varint(MAX_ELEMENTS + 1) + b"\x05\x00" * (MAX_ELEMENTS + 1)
    for api_key, version in ((18, 3), (0, 9), (1, 12)):
        frame = struct.pack(">hhih", api_key, version, 1, -1) + tags
        send_and_see_it_closed(broker, struct.pack(">i", len(frame)) + frame)


def test_one_bad_connection_does_not_disturb_another(broker: EmbeddedBroker, client: RawClient) -> None:
    create(client, "t")
    for _ in range(20):
        with RawClient(broker.port) as bad:
            bad.socket.sendall(b"\0\0\0\x40" + b"\xaa" * 64)
            assert bad.is_closed()
        assert send(client, "t", batch(1)).error_code == 0


def test_why_a_connection_was_closed_is_logged_once(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="headrace"):
        send_and_see_it_closed(broker, struct.pack(">i", -5))
    (record,) = [record for record in caplog.records if record.name.startswith("headrace.broker")]
    assert "a request of -5 bytes" in record.getMessage()
    assert "127.0.0.1" in record.getMessage()


def test_a_flood_of_bad_connections_does_not_flood_the_log(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="headrace"):
        for _ in range(100):
            with RawClient(broker.port) as client:
                client.socket.sendall(b"\xff" * 8)
                assert client.is_closed()
    assert len([record for record in caplog.records if record.name.startswith("headrace.broker")]) < 60


def test_a_frame_that_comes_byte_by_byte_is_read(broker: EmbeddedBroker) -> None:
    with RawClient(broker.port) as client:
        frame, at = client.frame(METADATA, 12, {"topics": None})
        for byte in frame:
            client.socket.sendall(bytes((byte,)))
        assert client.receive(METADATA, 12, at).brokers


def test_many_frames_in_one_packet_are_answered_in_order(client: RawClient) -> None:
    create(client, "t")
    frames = [client.frame(PRODUCE, 9, produce("t", batch(1), acks=1)) for _ in range(500)]
    client.socket.sendall(b"".join(frame for frame, _ in frames))
    offsets = [client.receive(PRODUCE, 9, at).responses[0].partition_responses[0].base_offset for _, at in frames]
    assert offsets == list(range(500))


def test_more_requests_than_may_wait_are_answered_all_the_same(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"headrace.max.pending.responses": "3"}) as broker, RawClient(broker.port) as client:
        create(client, "t")
        frames = [client.frame(PRODUCE, 9, produce("t", batch(1))) for _ in range(200)]
        client.socket.sendall(b"".join(frame for frame, _ in frames))
        offsets = [client.receive(PRODUCE, 9, at).responses[0].partition_responses[0].base_offset for _, at in frames]
        assert offsets == list(range(200))


def test_a_large_request_is_read_straight_through(client: RawClient) -> None:
    create(client, "t", max_message_bytes="50000000")
    records = batch(4, value=b"x" * 5_000_000)
    assert send(client, "t", records).error_code == 0
    assert read(client, "t", partition_max_bytes=30_000_000, max_bytes=30_000_000).records[16:] == records[16:]


def test_a_produce_without_acks_is_not_answered(client: RawClient) -> None:
    create(client, "t")
    for _ in range(3):
        client.send(PRODUCE, 9, produce("t", batch(1), acks=0))
    assert read(client, "t").high_watermark == 3


def test_a_failed_produce_without_acks_ends_the_connection(broker: EmbeddedBroker) -> None:
    with RawClient(broker.port) as client:
        client.send(PRODUCE, 9, produce("nope", batch(1), acks=0))
        assert client.is_closed()
    assert_serves(broker)


def test_what_was_sent_without_acks_before_closing_is_kept(broker: EmbeddedBroker, client: RawClient) -> None:
    create(client, "t")
    with RawClient(broker.port) as other:
        for _ in range(200):
            other.send(PRODUCE, 9, produce("t", batch(1, value=b"x" * 2000), acks=0))
    wait_until(lambda: read(client, "t", 0).high_watermark == 200)


@pytest.mark.system
def test_a_half_open_connection_with_a_part_of_a_frame_is_closed(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"headrace.frame.timeout.ms": "1000"}) as broker:
        for beginning in (b"\0\0", struct.pack(">i", 50_000_000) + b"\0" * 1000):
            with RawClient(broker.port) as client:
                client.socket.sendall(beginning)
                assert client.is_closed()
        assert_serves(broker)


@pytest.mark.system
def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"connections.max.idle.ms": "1000"}) as broker:
        with RawClient(broker.port) as idle, RawClient(broker.port) as waiting:
            create(waiting, "t")
            at = waiting.send(FETCH, 11, fetch({"t": [wish()]}, wait_ms=3500))
            assert idle.is_closed()
            assert waiting.receive(FETCH, 11, at).error_code == 0
        assert_serves(broker)


def test_connections_are_counted(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"max.connections": "3"}) as broker:
        clients = [RawClient(broker.port) for _ in range(3)]
        for client in clients:
            client.call(METADATA, 12, {"topics": None})
        with RawClient(broker.port) as refused:
            assert refused.is_closed()
        clients.pop().close()
        wait_until(lambda: broker.look(lambda b: len(b.server.connections)) == 2)
        with RawClient(broker.port) as admitted:
            admitted.call(METADATA, 12, {"topics": None})
        for client in clients:
            client.close()
        assert_serves(broker)


def test_connections_from_one_address_are_counted(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"max.connections.per.ip": "1"}) as broker:
        with RawClient(broker.port) as first:
            first.call(METADATA, 12, {"topics": None})
            with RawClient(broker.port) as second:
                assert second.is_closed()
        assert_serves(broker)


def test_requests_wait_for_memory_and_are_then_read(tmp_path: Path) -> None:
    limits = {"headrace.max.inflight.bytes": "1048576", "socket.request.max.bytes": "1000000"}
    with EmbeddedBroker(tmp_path, limits) as broker, RawClient(broker.port) as client:
        create(client, "t", max_message_bytes="2000000")
        clients = [RawClient(broker.port) for _ in range(4)]
        frames = [other.frame(PRODUCE, 9, produce("t", batch(1, value=b"x" * 800_000))) for other in clients]
        for other, (frame, _) in zip(clients, frames, strict=True):
            other.socket.sendall(frame[:300_000])
        wait_until(lambda: broker.look(lambda b: len(b.server._short)) == 3)
        assert broker.look(lambda b: b.server.reserved_bytes) < 1_048_576
        for other, (frame, at) in zip(clients, frames, strict=True):
            other.socket.sendall(frame[300_000:])
            assert other.receive(PRODUCE, 9, at).responses[0].partition_responses[0].error_code == 0
            other.close()
        wait_until(lambda: broker.look(lambda b: b.server.reserved_bytes) == 0)


def test_a_client_that_does_not_read_is_not_given_more(broker: EmbeddedBroker, client: RawClient) -> None:
    create(client, "t", max_message_bytes="2000000")
    for _ in range(8):
        send(client, "t", batch(1, value=b"x" * 1_000_000))
    slow = RawClient(broker.port)
    sent = [slow.send(FETCH, 11, fetch({"t": [wish(max_bytes=8_000_000)]})) for _ in range(12)]
    wait_until(lambda: broker.look(lambda b: bool(b.server.congested)))
    assert broker.look(lambda b: b.server.unsent_bytes()) < 20_000_000
    assert send(client, "t", batch(1)).error_code == 0
    for at in sent:
        assert len(slow.receive(FETCH, 11, at).responses[0].partitions[0].records) > 7_000_000
    slow.close()
    client.close()
    assert_serves(broker)


def test_a_handler_that_fails_says_so_and_the_broker_goes_on(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> int:
        raise RuntimeError("boom")

    broker.look(lambda b: setattr(b.store, "new_producer_id", fail))
    request = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
    with RawClient(broker.port) as client:
        assert client.call(22, 4, request).error_code == -1
    assert "init_producer_id v4 of client 'raw' at 127.0.0.1 failed" in caplog.text
    broker.look(lambda b: setattr(b.store, "topics", None))
    with RawClient(broker.port) as client:
        client.send(METADATA, 12, {"topics": None})
        assert client.is_closed()
    broker.look(lambda b: setattr(b.store, "topics", {}))
    assert_serves(broker)


def test_stopping_closes_every_connection(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        clients = [RawClient(broker.port) for _ in range(5)]
        create(clients[0], "t")
        clients[0].send(FETCH, 11, fetch({"t": [wish()]}, wait_ms=60_000))
    for client in clients:
        assert client.is_closed()
        client.close()
