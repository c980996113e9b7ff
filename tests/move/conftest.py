"""An Apache Kafka to move to, and a node for each test to move from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import ApacheKafka, Headrace


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    server = ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=settings, heap="384m")
    yield server
    server.stop()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Headrace]:
    options = ["--set", "log.cleaner.backoff.ms=50", "--set", "group.initial.rebalance.delay.ms=0"]
    server = Headrace(tmp_path / "node", options=options)
    yield server
    server.stop()
