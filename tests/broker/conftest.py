from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.broker import EmbeddedBroker
from tests.broker.raw_client import RawClient


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data") as embedded:
        yield embedded


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        yield raw
