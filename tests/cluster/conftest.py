"""Three Apache Kafka brokers with three copies of everything, and a PostgreSQL server: what an app that has outgrown
one machine runs on. Tests share them, so each has apps, topics and a database of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from headrace.feed.cluster import Cluster
from headrace.feed.topics import ensure_topic
from tests.capture.databases import Postgres, need_postgres
from tests.servers import KafkaCluster, Server

SECRET = "pw-of-headrace"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    servers = KafkaCluster(tmp_path_factory.mktemp("cluster"))
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    need_postgres()
    server = Postgres(wal_level="minimal", settings={"max_wal_senders": "0"})
    server.execute(f"create role headrace login password '{SECRET}'")
    yield server
    server.close()


@pytest.fixture(scope="module")
def new_views(postgres: Postgres) -> Callable[[], str]:
    """Makes an empty database for views and returns its address."""

    def made() -> str:
        name = f"views{next(_numbers)}"
        postgres.execute(f"create database {name} owner headrace")
        return postgres.dsn(name, "headrace", SECRET)

    return made


@pytest.fixture
def new_app() -> Callable[[], str]:
    """Names that no other test uses."""
    return lambda: f"app{next(_numbers)}"


@pytest.fixture
def make_topic() -> Callable[..., str]:
    """Makes a topic with three copies and returns its name; settings are given with underscores."""

    def make(server: Server, partitions: int = 1, **settings: str) -> str:
        name = f"topic-{next(_numbers)}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        ensure_topic(Cluster(server.bootstrap, {}), name, partitions, config)
        return name

    return make
