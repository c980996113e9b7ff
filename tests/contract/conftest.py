"""Both brokers, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import ApacheKafka, Headrace, Server

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
"""Both brokers wait for no further members before the first rebalance: tests are quicker."""


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    server = ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=SETTINGS)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def headrace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    chosen = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    server = Headrace(tmp_path_factory.mktemp("headrace"), options=chosen)
    yield server
    server.stop()


@pytest.fixture(scope="session", params=["kafka", "headrace"])
def broker(request: pytest.FixtureRequest) -> Server:
    """Each of the two brokers in turn: a test that uses it states what holds for both."""
    server: Server = request.getfixturevalue(request.param)
    return server
