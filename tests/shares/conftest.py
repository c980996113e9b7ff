from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.broker import EmbeddedBroker
from tests.shares.member import Bench


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def bench(broker: EmbeddedBroker) -> Iterator[Bench]:
    made = Bench(broker)
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"
