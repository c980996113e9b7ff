"""Every scenario is held with Apache Kafka and with Headrace, and the answers are compared."""

from __future__ import annotations

import pytest

from tests.contract import transcript
from tests.contract.scenarios import cluster, configs, fetch, groups, idempotence, offsets, produce, topics
from tests.contract.session import Scenario, Session, scenarios_of
from tests.servers import ApacheKafka, Headrace, Server

MODULES = (cluster, configs, fetch, groups, idempotence, offsets, produce, topics)
SCENARIOS = [scenario for module in MODULES for scenario in scenarios_of(module)]
INTENDED = transcript.intended()


def held_with(server: Server, scenario: Scenario) -> transcript.Transcript:
    prefix = scenario.id.replace("[", "-").replace("]", "")
    session = Session(server.bootstrap, prefix[-100:], scenario.version)
    try:
        scenario.run(session)
    finally:
        session.close()
    return session.transcript


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one.id for one in SCENARIOS])
def test_both_brokers_answer_the_same(scenario: Scenario, kafka: ApacheKafka, headrace: Headrace) -> None:
    found = transcript.differences(held_with(kafka, scenario), held_with(headrace, scenario))
    here = [entry for entry in INTENDED if entry.applies(scenario.id)]
    surprises = [one for one in found if not any(entry.covers(scenario.id, one) for entry in here)]
    stale = [entry for entry in here if not any(entry.covers(scenario.id, one) for one in found)]
    assert not surprises, "\n".join(map(str, surprises))
    assert not stale, f"listed in differences.toml and no longer so: {stale}"
