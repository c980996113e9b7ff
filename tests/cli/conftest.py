"""The servers that commands are tried on, each started once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.cli.command import Cli
from tests.servers import ApacheKafka, Headrace, Server

_numbers = itertools.count()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    server = ApacheKafka(
        tmp_path_factory.mktemp("kafka"), settings={"group.initial.rebalance.delay.ms": "0"}, heap="256m"
    )
    yield server
    server.stop()


@pytest.fixture(scope="session")
def headrace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    server = Headrace(tmp_path_factory.mktemp("headrace"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Server:
    """Headrace, or what the test asks for (``on_both``)."""
    found: Server = request.getfixturevalue(getattr(request, "param", "headrace"))
    return found


@pytest.fixture
def cli(server: Server) -> Cli:
    """The command line on a running broker."""
    return Cli(server.bootstrap)


@pytest.fixture
def new_name() -> Callable[[str], str]:
    """Names that no other test uses."""
    return lambda stem: f"{stem}-{next(_numbers)}"


@pytest.fixture
def topic(cli: Cli, new_name: Callable[[str], str]) -> str:
    """A new topic with 3 partitions."""
    name = new_name("topic")
    cli("topic", "create", name, "--partitions", "3")
    return name
