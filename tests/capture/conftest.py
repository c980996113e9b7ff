"""One PostgreSQL server and one log for all tests of a module's worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.capture.databases import Postgres, need_postgres
from tests.servers import Headrace


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    need_postgres()
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    server = Headrace(tmp_path_factory.mktemp("log"))
    yield server
    server.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"
