"""A quota holds for members of share groups as it does for others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.testing.broker import EmbeddedBroker
from tests.broker.raw_client import RawClient
from tests.broker.test_quotas import alter
from tests.shares.member import Bench, acquired, values


@pytest.fixture
def slow(broker: EmbeddedBroker) -> Iterator[str]:
    """A client id that may get 300 bytes a second."""
    client = RawClient(broker.port)
    assert alter(client, "slow", consumer_byte_rate=300.0).error_code == 0
    yield "slow"
    assert alter(client, "slow", consumer_byte_rate=None).error_code == 0
    client.close()


def test_a_member_gets_ten_seconds_worth_and_is_silent_then(broker: EmbeddedBroker, bench: Bench, slow: str) -> None:
    throttled = broker.broker.quotas.throttled
    before = throttled["consumer_byte_rate"]
    for number in range(10):
        bench.fill(b"%d" % number * 1000)
    one, another = bench.member("one"), bench.member("another")
    one.client.close()
    one.client = RawClient(broker.port, client_id=slow)
    answers = [one.fetch(wait=5000), one.fetch()]
    assert [len(values(answer)) for answer in answers] == [2, 2], "what comes at once is within the quota"
    assert [answer.throttle_time_ms > 0 for answer in answers] == [False, True]
    assert throttled["consumer_byte_rate"] == before + 1
    rest = another.fetch()
    assert rest.throttle_time_ms == 0, "others are not held up"
    assert acquired(rest) == [(4, 9, 1)]
