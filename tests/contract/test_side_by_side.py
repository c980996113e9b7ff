"""Every scenario is held with Apache Kafka and with Headrace, and the answers are compared."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract import transcript
from tests.contract.scenarios import (
    cluster,
    configs,
    consumer_groups,
    fetch,
    groups,
    idempotence,
    migration,
    offsets,
    produce,
    quotas,
    share_groups,
    shares,
    topics,
    transactions,
)
from tests.contract.session import Scenario, Session, scenarios_of
from tests.servers import ApacheKafka, Headrace, Server

MODULES = (
    cluster,
    configs,
    consumer_groups,
    fetch,
    groups,
    idempotence,
    migration,
    offsets,
    produce,
    quotas,
    share_groups,
    shares,
    topics,
    transactions,
)
SCENARIOS = [scenario for module in MODULES for scenario in scenarios_of(module)]
INTENDED = transcript.intended()
held: set[str] = set()
seen: set[transcript.Intended] = set()


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
    surprises = []
    with ThreadPoolExecutor() as both:  # at once: most scenarios wait for something
        theirs, ours = both.map(lambda server: held_with(server, scenario), (kafka, headrace))
    for one in transcript.differences(theirs, ours):
        listed = [entry for entry in INTENDED if entry.covers(scenario.id, one)]
        seen.update(listed)
        if not listed:
            surprises.append(str(one))
    held.add(scenario.id)
    assert not surprises, "\n".join(surprises)


def test_every_listed_difference_is_still_there() -> None:
    if len(held) < len(SCENARIOS):
        pytest.skip("only some scenarios were held")
    stale = [f"{entry.scenario} {entry.path}" for entry in INTENDED if entry not in seen]
    assert not stale, "in differences.toml, and no longer so:\n" + "\n".join(stale)
