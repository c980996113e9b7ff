"""The corners of the group protocol are the same with Apache Kafka and with Headrace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract import transcript
from tests.contract.session import Scenario, scenarios_of
from tests.contract.test_side_by_side import held_with
from tests.groups import corners
from tests.servers import ApacheKafka, Headrace

SCENARIOS = list(scenarios_of(corners))
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    server = ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=SETTINGS)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def headrace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    chosen = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    server = Headrace(tmp_path_factory.mktemp("headrace"), options=chosen)
    yield server
    server.stop()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one.id for one in SCENARIOS])
def test_both_brokers_answer_the_same(scenario: Scenario, kafka: ApacheKafka, headrace: Headrace) -> None:
    found = transcript.differences(held_with(kafka, scenario), held_with(headrace, scenario))
    assert not found, "\n".join(map(str, found))
