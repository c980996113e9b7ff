"""One PostgreSQL server for all tests of stores, with a database ``views``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.capture.databases import Postgres, need_postgres
from tests.views.schemas import emptied, opened_at
from tests.views.store_laws import Opened


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    need_postgres()
    server = Postgres(wal_level="minimal", settings={"max_wal_senders": "0"})
    server.create("views")
    yield server
    server.close()


@pytest.fixture
def dsn(postgres: Postgres) -> str:
    """The address of a database without schemas."""
    return emptied(postgres)


@pytest.fixture
def opened(dsn: str) -> Iterator[Opened]:
    """The store of an app, open."""
    made = opened_at(dsn)
    yield made
    made.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who needs a lock waits until the test has looked."""
    monkeypatch.setattr("headrace.views.postgres.store.LOCK_PATIENCE_MS", 60_000)
