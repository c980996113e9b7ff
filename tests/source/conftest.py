"""One Spark, one node and one Apache Kafka for all tests of the source."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import admin

from tests.servers import ApacheKafka, Headrace, Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count(1)
_QUICK = {"spark.sql.streaming.noDataMicroBatches.enabled": "false", "spark.sql.shuffle.partitions": "1"}


@pytest.fixture(scope="session")
def headrace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    server = Headrace(tmp_path_factory.mktemp("headrace"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    server = ApacheKafka(tmp_path_factory.mktemp("kafka"), heap="256m")
    yield server
    server.stop()


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    """The Spark that all tests of this process share, with settings that last for one test."""
    from headrace.testing.app import shared_spark

    session = shared_spark()
    before = {name: session.conf.get(name) for name in _QUICK}
    for name, value in _QUICK.items():
        session.conf.set(name, value)
    yield session
    for name, value in before.items():
        session.conf.set(name, value)


@pytest.fixture
def make_topic() -> Callable[..., str]:
    """Makes a topic on a server and returns its name."""

    def make(server: Server, partitions: int = 1) -> str:
        name = f"source-{next(_numbers)}"
        client = admin.AdminClient({"bootstrap.servers": server.bootstrap})
        client.create_topics([admin.NewTopic(name, partitions, 1)])[name].result(30)
        return name

    return make
