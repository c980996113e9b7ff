"""One connection does not keep the others waiting."""

from __future__ import annotations

from itertools import pairwise

from headrace.broker.broker import Broker
from headrace.testing.broker import EmbeddedBroker
from tests.broker.raw_client import RawClient

API_VERSIONS = 18
MANY = 5_000


def test_very_many_small_requests_leave_others_their_turn(broker: EmbeddedBroker, client: RawClient) -> None:
    turns: list[int] = []
    done = False

    def look(inside: Broker) -> None:
        turns.append(inside.server.requests[API_VERSIONS])
        if not done:
            inside.loop.call_soon(look, inside)

    broker.look(look)
    frame, _ = client.frame(API_VERSIONS, 0)
    client.socket.sendall(frame * MANY)
    for _ in range(MANY):
        client.receive_frame()
    done = True
    assert turns[-1] <= MANY
    assert max(after - before for before, after in pairwise(turns)) <= 3 * 64
    assert client.call(API_VERSIONS, 0).error_code == 0
