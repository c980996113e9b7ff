"""One Headrace node for all client tests, and topics on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import admin

from tests.servers import Headrace

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    server = Headrace(
        tmp_path_factory.mktemp("node"),
        options=["--set", "group.initial.rebalance.delay.ms=0", "--set", "message.max.bytes=33554432"],
    )
    yield server
    server.stop()


@pytest.fixture
def new_topic(node: Headrace) -> Callable[..., str]:
    """Makes a topic and returns its name; settings are given with underscores."""
    client = admin.AdminClient({"bootstrap.servers": node.bootstrap})

    def make(partitions: int = 1, **settings: str) -> str:
        name = f"topic-{next(_numbers)}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        client.create_topics([admin.NewTopic(name, partitions, 1, config=config)])[name].result(20)
        return name

    return make
