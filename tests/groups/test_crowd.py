"""A thousand members at once, on a real node."""

from __future__ import annotations

import asyncio
import itertools
import struct
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.broker import wire
from tests.servers import Headrace

pytestmark = pytest.mark.system

JOIN, HEARTBEAT, LEAVE, SYNC, LIST = 11, 12, 13, 14, 16
MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS = 79, 27
CROWD = 1_000


class Caller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)

    @classmethod
    async def connect(cls, port: int) -> Caller:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def call(self, api_key: int, version: int, request: dict[str, Any]) -> Any:
        body = bytes(wire.encode_request(api_key, version, request))
        head = struct.pack(">hhih", api_key, version, next(self._ids), -1) + b"\0"
        self._writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return wire.decode_response(api_key, version, await self._reader.readexactly(size), 5)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


class Joined(NamedTuple):
    """A member that has its assignment."""

    caller: Caller
    member_id: str
    generation: int
    assignment: bytes


async def join(port: int, settled: set[str]) -> Joined:
    """As a consumer does it: again and again, until the group is stable and all are in it."""
    caller = await Caller.connect(port)
    member_id = ""
    while True:
        joined = await caller.call(
            JOIN,
            9,
            {
                "group_id": "crowd",
                "session_timeout_ms": 60_000,
                "rebalance_timeout_ms": 120_000,
                "member_id": member_id,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b"m" * 100}],
            },
        )
        assert joined.error_code in (0, MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS)
        member_id = joined.member_id
        if joined.error_code:
            continue
        about = {"group_id": "crowd", "generation_id": joined.generation_id, "member_id": member_id}
        shares = [{"member_id": one.member_id, "assignment": one.member_id.encode()} for one in joined.members]
        synced = await caller.call(
            SYNC, 5, {**about, "protocol_type": "consumer", "protocol_name": "range", "assignments": shares}
        )
        assert synced.error_code in (0, REBALANCE_IN_PROGRESS)
        while synced.error_code == 0 and (await caller.call(HEARTBEAT, 4, about)).error_code == 0:
            settled.add(member_id)
            if len(settled) == CROWD:
                return Joined(caller, member_id, joined.generation_id, bytes(synced.assignment))
            await asyncio.sleep(0.2)
        settled.discard(member_id)


async def crowd(port: int) -> None:
    settled: set[str] = set()
    members = await asyncio.gather(*(join(port, settled) for _ in range(CROWD)))
    assert len({member.generation for member in members}) == 1
    assert all(member.assignment == member.member_id.encode() for member in members)
    leaving = (
        member.caller.call(LEAVE, 5, {"group_id": "crowd", "members": [{"member_id": member.member_id}]})
        for member in members
    )
    answers = await asyncio.gather(*leaving)
    assert all(answer.error_code == 0 == answer.members[0].error_code for answer in answers)
    listed = await members[0].caller.call(LIST, 5, {"states_filter": (), "types_filter": ()})
    assert [(group.group_id, group.group_state) for group in listed.groups] == [("crowd", "Empty")]
    await asyncio.gather(*(member.caller.close() for member in members))


def test_a_thousand_members_that_join_at_once_agree_on_one_generation(tmp_path: Path) -> None:
    node = Headrace(tmp_path, options=["--set", "group.initial.rebalance.delay.ms=1000"])
    asyncio.run(crowd(node.port))
    node.stop()
