"""What a process learns of the group whose work it shares, from a stand-in for the client."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from headrace.feed import membership
from headrace.feed.cluster import Cluster
from headrace.feed.membership import PARTS_TOPIC, Membership


class Said:
    """What a poll returns for an error."""

    def __init__(self, code: int) -> None:
        self._error = KafkaError(code, "said so")

    def error(self) -> KafkaError:
        return self._error


class Client:
    """A consumer whose coordinator is the test."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.answers: list[Said | None] = []

    def subscribe(self, topics: list[str], on_assign: Any, **_: Any) -> None:
        self.on_assign = on_assign

    def assign(self, partitions: list[TopicPartition]) -> None: ...

    def poll(self, timeout: float) -> Said | None:
        return self.answers.pop(0) if self.answers else None


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> tuple[Membership, Client]:
    monkeypatch.setattr(membership, "Consumer", Client)
    monkeypatch.setattr(membership, "ensure_topic", lambda *_: None)
    monkeypatch.setattr(Cluster, "partitions", lambda *_: [0])
    member = Membership(Cluster("127.0.0.1:1", {}), "views")
    return member, member._consumer  # type: ignore[return-value]


@pytest.mark.parametrize("code", [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.INVALID_SESSION_TIMEOUT])
def test_what_a_group_has_against_a_member_is_known_until_it_is_taken(
    joined: tuple[Membership, Client], code: int
) -> None:
    member, client = joined
    client.answers = [Said(code)]
    member.poll()
    member.poll()
    assert member.trouble == "group 'views' does not take this process: said so"
    client.on_assign(client, [TopicPartition(PARTS_TOPIC, 3)])
    assert (member.trouble, member.parts) == (None, {3})


@pytest.mark.parametrize("code", [KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._UNKNOWN_TOPIC])
def test_a_broker_that_went_away_has_nothing_against_a_member(joined: tuple[Membership, Client], code: int) -> None:
    member, client = joined
    client.answers = [Said(code)]
    member.poll()
    assert member.trouble is None
