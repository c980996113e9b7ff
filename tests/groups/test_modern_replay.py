"""Consumer groups, share groups and groups on the way from one protocol to the other: the state is the fold of the log.

The story of ``test_replay.py`` with members of all protocols in the same groups. After every step what writers look at
is the fold of all that was appended, and what readers are told the fold of what is on disk; after a crash the
coordinator has the fold of a prefix. No two members of a consumer group ever have one partition.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headrace.broker.groups.codes import Code
from headrace.broker.groups.journal import OFFSETS_TOPIC
from headrace.broker.groups.modern_messages import HeartbeatRequest
from headrace.broker.groups.modern_records import GroupType, Partitions
from headrace.broker.groups.subscription import encode_assignment
from tests.groups.bench import fold
from tests.groups.lab import subscription
from tests.groups.test_replay import CLIENTS, GROUPS, Client, Story

pytestmark = pytest.mark.system

TOPICS = st.sampled_from([("t",), ("t", "u"), (), None])
OPERATIONS = st.one_of(
    *(st.tuples(st.just("beat"), GROUPS, CLIENTS, TOPICS) for _ in range(4)),
    st.tuples(st.just("beat_regex"), GROUPS, CLIENTS, st.sampled_from(["t.*", "u", "[tu]", "("])),
    st.tuples(st.just("modern_leave"), GROUPS, CLIENTS, st.sampled_from([-1, -2])),
    st.tuples(st.just("modern_commit"), GROUPS, CLIENTS, st.integers(0, 2)),
    st.tuples(st.just("join"), GROUPS, CLIENTS, st.just("range")),
    st.tuples(st.just("rebalance"), GROUPS),
    st.tuples(st.just("sync_group"), GROUPS, CLIENTS),
    st.tuples(st.just("heartbeat"), GROUPS, CLIENTS),
    st.tuples(st.just("leave"), GROUPS, CLIENTS),
    st.tuples(st.just("commit"), GROUPS, CLIENTS, st.integers(0, 2)),
    st.tuples(st.just("commit_simple"), GROUPS, st.integers(0, 2)),
    st.tuples(st.just("share"), CLIENTS, TOPICS),
    st.tuples(st.just("delete_group"), st.sampled_from(["g", "h", "s"])),
    st.tuples(st.just("delete_topic")),
    st.tuples(st.just("new_topic")),
    st.tuples(st.just("pass_time"), st.sampled_from([50, 1_000, 11_000, 46_000])),
    st.tuples(st.just("pass_days"), st.sampled_from([1, 7])),
    *(st.tuples(st.just("sync")) for _ in range(5)),
    st.tuples(st.just("compact")),
    st.tuples(st.just("disk_full")),
    st.tuples(st.just("room_again")),
    st.tuples(st.just("failing_sync")),
    st.tuples(st.just("crash"), st.integers(0, 2**32)),
)


class ModernStory(Story):
    """Also tells of members that speak the newer protocols. Client 3 is static in all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.clients |= {("s", number): Client(number) for number in range(4)}
        self.epochs: dict[tuple[str, int], int] = {}
        self.owned: dict[tuple[str, int], Partitions] = {}

    async def join(self, group: str, number: int, protocol: str) -> None:
        """Classic consumers that really are consumers, so that their groups can be upgraded."""
        client = self.clients[group, number]
        protocols = ((protocol, subscription("t")),)
        call = self.bench.join(group, client.member_id, client.instance, protocols=protocols, session_timeout_ms=10_000)

        async def ask() -> None:
            self.joined(client, await call)

        client.tasks.append(await self.bench.start(ask()))

    async def sync_group(self, group: str, number: int) -> None:
        client = self.clients[group, number]
        given_out = {
            member_id: encode_assignment(1, {"t": (index,)}) for index, member_id in enumerate(client.leads[:4])
        }
        call = self.bench.sync_group(client.member_id, client.generation, given_out, group, client.instance)
        client.tasks.append(await self.bench.start(call))

    async def beat(self, group: str, number: int, topics: tuple[str, ...] | None) -> None:
        await self._beat(group, number, topics=topics)

    async def do(self, name: str, *arguments: Any) -> None:
        kinds = {group: self._kind(group) for group in ("g", "h")}
        await super().do(name, *arguments)
        for group, before in kinds.items():
            after = self._kind(group)
            if name != "crash" and before != after and None not in (before, after):
                event(f"{before} to {after}")

    def _kind(self, group: str) -> str | None:
        """What a group with members is."""
        latest = self.bench.groups.journal.latest
        if group in latest.modern and latest.modern[group].subscriptions:
            return "consumer"
        return "classic" if group in latest.groups and latest.groups[group].members else None

    async def beat_regex(self, group: str, number: int, regex: str) -> None:
        await self._beat(group, number, regex=regex)

    async def share(self, number: int, topics: tuple[str, ...] | None) -> None:
        await self._beat("s", number, topics=topics)

    async def _beat(self, group: str, number: int, **more: Any) -> None:
        place = group, number
        epoch = self.epochs.get(place, 0)
        instance = "i3" if number == 3 and group != "s" else None
        owned = self.owned.get(place, {}) if epoch else {}
        if epoch == 0:
            more = {"topics": ("t",)} | {name: value for name, value in more.items() if value is not None}
        request = HeartbeatRequest(
            f"n{number}", epoch, "c", "/h", instance_id=instance, rebalance_timeout_ms=30_000, owned=owned, **more
        )
        groups = self.bench.groups
        call = (groups.share_heartbeat if group == "s" else groups.consumer_heartbeat)(group, request)

        async def ask() -> None:
            answer = await call
            if answer.code is Code.NONE:
                event("heartbeat taken")
                self.epochs[place] = answer.member_epoch
                if answer.assignment is not None:
                    self.owned[place] = answer.assignment
            elif answer.code in (Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID, Code.GROUP_ID_NOT_FOUND):
                self.epochs.pop(place, None)
                self.owned.pop(place, None)

        self.clients[place].tasks.append(await self.bench.start(ask()))

    async def modern_leave(self, group: str, number: int, epoch: int) -> None:
        instance = "i3" if number == 3 else None
        request = HeartbeatRequest(f"n{number}", epoch if instance else -1, "c", "/h", instance)
        self.epochs.pop((group, number), None)
        call = self.bench.groups.consumer_heartbeat(group, request)
        self.clients[group, number].tasks.append(await self.bench.start(call))

    async def modern_commit(self, group: str, number: int, partition: int) -> None:
        epoch = self.epochs.get((group, number), -1)
        await self._commit(self.clients[group, number], group, f"n{number}", epoch, partition, None)

    async def new_topic(self) -> None:
        if "u" in self.bench.store.topics:
            self.bench.store.add_partitions("u", len(self.bench.store.topics["u"].partitions) + 1)
        else:
            self.bench.store.create_topic("u", 1)

    async def crash(self, seed: int) -> None:
        await super().crash(seed)
        self.epochs.clear()

    def check(self) -> None:
        journal = self.bench.groups.journal
        if self.bench.store.partition(OFFSETS_TOPIC, 0).failed:
            assert journal.latest == journal.durable
        else:
            assert journal.latest == fold(self.appended)
        assert journal.durable == fold(self.on_disk())
        for state in (journal.latest, journal.durable):
            assert state.offsets.keys() <= state.groups.keys() | state.modern.keys()
            assert not state.groups.keys() & state.modern.keys()
            for group in state.modern.values():
                event(f"{group.type} group")
                if group.type is GroupType.CONSUMER:
                    _check_owners(group)
        assert not self.bench.groups._groups.keys() & journal.latest.modern.keys()


def _check_owners(group: Any) -> None:
    has = Counter(
        (topic, partition)
        for current in group.current.values()
        for side in (current.assigned, current.revoking)
        for topic, partitions in side.items()
        for partition in partitions
    )
    assert not has or max(has.values()) == 1
    assert has.keys() == group.owners.keys()


@settings(max_examples=100)
@given(st.lists(OPERATIONS, min_size=5, max_size=80), st.integers(0, 2**32))
def test_the_state_is_the_fold_of_the_log_live_and_after_a_crash(operations: list[tuple[Any, ...]], seed: int) -> None:
    async def tell() -> None:
        story = ModernStory()
        for operation in operations:
            await story.do(*operation)
            story.check()
        await story.do("crash", seed)
        story.check()

    asyncio.run(tell())
