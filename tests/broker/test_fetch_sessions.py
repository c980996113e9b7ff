from pathlib import Path
from typing import Any

import pytest

from headrace.broker.codecs.fetch import FetchRequest, PartitionWish
from headrace.broker.fetch_sessions import FetchSessions, SessionError, follow
from headrace.testing.broker import EmbeddedBroker
from headrace.testing.clock import ManualClock
from tests.broker.messages import FETCH, batch, create, fetch, send, wish
from tests.broker.raw_client import RawClient


def call(client: RawClient, topics: dict[str, list[Any]], session: tuple[int, int], **more: Any) -> Any:
    return client.call(FETCH, 11, fetch(topics, session=session, **more))


def told(answer: Any) -> list[tuple[str, int]]:
    return [(topic.topic, item.partition_index) for topic in answer.responses for item in topic.partitions]


def test_a_full_fetch_opens_a_session_and_tells_everything(client: RawClient) -> None:
    create(client, "t", 3)
    answer = call(client, {"t": [wish(p) for p in range(3)]}, (0, 0))
    assert answer.session_id > 0
    assert told(answer) == [("t", 0), ("t", 1), ("t", 2)]


def test_an_incremental_fetch_tells_only_news(client: RawClient) -> None:
    create(client, "t", 3)
    session = call(client, {"t": [wish(p) for p in range(3)]}, (0, 0)).session_id
    assert told(call(client, {}, (session, 1))) == []
    send(client, "t", batch(2), partition=1)
    answer = call(client, {}, (session, 2))
    assert told(answer) == [("t", 1)]
    assert len(answer.responses[0].partitions[0].records) > 0
    assert answer.session_id == session
    answer = call(client, {"t": [wish(1, 2)]}, (session, 3))
    assert told(answer) == []


def test_an_incremental_fetch_waits_for_any_partition_of_the_session(client: RawClient, broker: EmbeddedBroker) -> None:
    create(client, "t", 3)
    with RawClient(broker.port) as reader:
        session = call(reader, {"t": [wish(p) for p in range(3)]}, (0, 0)).session_id
        at = reader.send(FETCH, 11, fetch({}, session=(session, 1), wait_ms=20_000))
        send(client, "t", batch(1), partition=2)
        assert told(reader.receive(FETCH, 11, at)) == [("t", 2)]


def test_partitions_are_added_and_forgotten(client: RawClient) -> None:
    create(client, "t", 2)
    create(client, "u", 1)
    session = call(client, {"t": [wish(0)]}, (0, 0)).session_id
    assert told(call(client, {"t": [wish(1)], "u": [wish(0)]}, (session, 1))) == [("t", 1), ("u", 0)]
    for partition in (0, 1):
        send(client, "t", batch(1), partition=partition)
    assert told(call(client, {}, (session, 2), forgotten={"t": [0]})) == [("t", 1)]


def test_a_session_that_forgets_everything_ends(client: RawClient, broker: EmbeddedBroker) -> None:
    create(client, "t")
    session = call(client, {"t": [wish(0)]}, (0, 0)).session_id
    answer = call(client, {}, (session, 1), forgotten={"t": [0]})
    assert (answer.error_code, answer.session_id) == (0, 0)
    assert broker.look(lambda b: len(b.sessions)) == 0


@pytest.mark.parametrize(("session_id", "epoch", "code"), [(77, 1, 70), (None, 2, 71), (None, 7, 71)])
def test_a_request_that_does_not_fit_its_session_is_refused(
    client: RawClient, session_id: int | None, epoch: int, code: int
) -> None:
    create(client, "t")
    session = call(client, {"t": [wish(0)]}, (0, 0)).session_id
    answer = call(client, {}, (session_id or session, epoch))
    assert (answer.error_code, answer.session_id, answer.responses) == (code, 0, [])


def test_a_full_fetch_ends_the_session_that_it_names(client: RawClient, broker: EmbeddedBroker) -> None:
    create(client, "t")
    session = call(client, {"t": [wish(0)]}, (0, 0)).session_id
    assert call(client, {"t": [wish(0)]}, (session, -1)).session_id == 0
    assert broker.look(lambda b: len(b.sessions)) == 0


def test_an_error_is_told_again_and_again(client: RawClient) -> None:
    session = call(client, {"t": [wish(0)]}, (0, 0)).session_id
    for epoch in (1, 2):
        assert call(client, {}, (session, epoch)).responses[0].partitions[0].error_code == 3
    create(client, "t")
    assert call(client, {}, (session, 3)).responses[0].partitions[0].error_code == 0


def test_all_partitions_of_a_session_get_their_turn(client: RawClient) -> None:
    create(client, "t", 3)
    for partition in range(3):
        for _ in range(3):
            send(client, "t", batch(1, value=b"x" * 1000), partition=partition)
    offsets = {0: 0, 1: 0, 2: 0}
    served = []
    session, epoch, topics = 0, 0, {"t": [wish(p) for p in range(3)]}
    for _ in range(9):
        answer = call(client, topics, (session, epoch), max_bytes=1)
        session, epoch = answer.session_id, epoch + 1
        given = [item for item in answer.responses[0].partitions if item.records]
        assert len(given) == 1
        index = given[0].partition_index
        served.append(index)
        offsets[index] += 1
        topics = {"t": [wish(index, offsets[index])]}
    assert served == [0, 1, 2] * 3


def _request(session: tuple[int, int]) -> FetchRequest:
    return FetchRequest(-1, 0, 1, 1, 0, session[0], session[1], [], [])


def test_the_oldest_session_makes_room_once_it_is_old_enough() -> None:
    clock = ManualClock()
    sessions = FetchSessions(clock, 2)
    followed = [("t", [PartitionWish(0, -1, 0, -1, 1)])]
    first = sessions.create(follow(followed), False)
    second = sessions.create(follow(followed), False)
    assert first is not None
    assert second is not None
    assert sessions.create(follow(followed), False) is None
    clock.advance(119_000)
    sessions.resume(_request((first.id, 1)), False)
    clock.advance(2_000)
    third = sessions.create(follow(followed), False)
    assert third is not None
    assert first.id in sessions
    assert second.id not in sessions


def test_a_session_by_name_is_not_resumed_by_id() -> None:
    sessions = FetchSessions(ManualClock(), 2)
    session = sessions.create(follow([("t", [PartitionWish(0, -1, 0, -1, 1)])]), False)
    assert session is not None
    with pytest.raises(SessionError) as caught:
        sessions.resume(_request((session.id, 1)), True)
    assert caught.value.code == 106


def test_sessions_can_be_switched_off(tmp_path: Path) -> None:
    properties = {"max.incremental.fetch.session.cache.slots": "0"}
    with EmbeddedBroker(tmp_path, properties) as broker, RawClient(broker.port) as client:
        create(client, "t")
        assert call(client, {"t": [wish(0)]}, (0, 0)).session_id == 0
