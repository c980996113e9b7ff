import time
from pathlib import Path

import pytest

from headrace.errors import FolderInUse, InvalidConfig
from headrace.settings import BrokerSettings, host_port
from headrace.testing.broker import EmbeddedBroker
from tests.broker.messages import CREATE_TOPICS, PRODUCE, batch, create, list_offset, new_topic, produce, read, send
from tests.broker.raw_client import RawClient


def test_requests_of_a_connection_are_handled_in_their_order(client: RawClient) -> None:
    created = client.send(CREATE_TOPICS, 7, new_topic("t"))
    sent = [client.send(PRODUCE, 9, produce("t", batch(1), acks=acks)) for acks in (-1, 1, -1, 1)]
    assert client.receive(CREATE_TOPICS, 7, created).topics[0].error_code == 0
    results = [client.receive(PRODUCE, 9, at).responses[0].partition_responses[0] for at in sent]
    assert [(result.error_code, result.base_offset) for result in results] == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.port) as client:
        create(client, "t")
        send(client, "t", batch(3))
        before = read(client, "t").records
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.port) as client:
        assert read(client, "t").records == before
        assert send(client, "t", batch(1)).base_offset == 3


def test_old_segments_go_while_the_broker_runs(tmp_path: Path) -> None:
    with (
        EmbeddedBroker(tmp_path, {"log.retention.check.interval.ms": "50"}) as broker,
        RawClient(broker.port) as client,
    ):
        create(client, "t", internal_segment_bytes="2000", retention_bytes="3000", file_delete_delay_ms="0")
        for _ in range(20):
            send(client, "t", batch(1, value=b"x" * 500))
        deadline = time.monotonic() + 20
        while (start := list_offset(client, "t", -2).offset) == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert read(client, "t", start).records
        assert read(client, "t", 0).error_code == 1


def test_a_second_broker_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path), pytest.raises(FolderInUse):
        EmbeddedBroker(tmp_path).start()


def test_a_broker_that_cannot_listen_lets_its_folder_go(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "a") as broker:
        with pytest.raises(OSError, match="address already in use"):
            EmbeddedBroker(tmp_path / "b", port=broker.port).start()
        with EmbeddedBroker(tmp_path / "b"):
            pass


@pytest.mark.parametrize("properties", [{"nope": "1"}, {"num.partitions": "0"}, {"log.retention.ms": "soon"}])
def test_a_bad_setting_is_refused_at_once(tmp_path: Path, properties: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(properties))):
        BrokerSettings(tmp_path, properties=properties)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("host", ("host", 9092)),
        (":80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
        ("::1", ("::1", 9092)),
    ],
)
def test_addresses_are_read(text: str, expected: tuple[str, int]) -> None:
    assert host_port(text) == expected


@pytest.mark.parametrize("text", ["host:port", "host:70000", "host:-1"])
def test_bad_addresses_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="not an address"):
        host_port(text)
