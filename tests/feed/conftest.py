"""A node with small segments, Apache Kafka, and topics on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import admin

from tests.servers import ApacheKafka, Headrace, Server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def headrace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    server = Headrace(tmp_path_factory.mktemp("headrace"), options=["--set", "group.initial.rebalance.delay.ms=0"])
    yield server
    server.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    server = ApacheKafka(tmp_path_factory.mktemp("kafka"), heap="256m")
    yield server
    server.stop()


@pytest.fixture
def make_topic() -> Callable[..., str]:
    """Makes a topic on a server and returns its name; settings are given with underscores."""

    def make(server: Server, partitions: int = 1, **settings: str) -> str:
        name = f"feed-{next(_numbers)}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        client = admin.AdminClient({"bootstrap.servers": server.bootstrap})
        client.create_topics([admin.NewTopic(name, partitions, 1, config=config)])[name].result(30)
        return name

    return make
