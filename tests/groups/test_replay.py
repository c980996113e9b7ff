"""Whatever clients do and wherever the power fails: the state is the fold of the log, live and after a restart.

Random requests, lost time, syncs that may fail, a disk that is full at times, compactions and crashes over a disk that
loses what was not synced. After every step:

- what writers look at is the fold of all that was appended, what readers are told the fold of what is on disk;
- a stable group is, member for member, what the log says of it;
- what was answered is on disk.

After a crash the coordinator has the fold of a prefix of what was appended, with at least all that was on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from dataclasses import dataclass, field
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from headrace.broker.groups.codes import Code
from headrace.broker.groups.journal import OFFSETS_TOPIC
from headrace.broker.groups.messages import JoinAnswer, Leaver, Phase
from headrace.broker.groups.records import Change, GroupMetadata, OffsetChange
from tests.groups.bench import Bench, fold

DAY_MS = 24 * 3_600_000
SMALL_SEGMENTS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "400",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
}
GROUPS = st.sampled_from(["g", "h"])
CLIENTS = st.integers(0, 3)
OPERATIONS = st.one_of(
    st.tuples(st.just("join"), GROUPS, CLIENTS, st.sampled_from(["range", "sticky"])),
    st.tuples(st.just("rebalance"), GROUPS),
    st.tuples(st.just("rebalance"), GROUPS),
    st.tuples(st.just("sync_group"), GROUPS, CLIENTS),
    st.tuples(st.just("heartbeat"), GROUPS, CLIENTS),
    st.tuples(st.just("leave"), GROUPS, CLIENTS),
    st.tuples(st.just("commit"), GROUPS, CLIENTS, st.integers(0, 2)),
    st.tuples(st.just("commit_simple"), GROUPS, st.integers(0, 2)),
    st.tuples(st.just("delete_group"), GROUPS),
    st.tuples(st.just("delete_offset"), GROUPS, st.integers(0, 2)),
    st.tuples(st.just("delete_topic")),
    st.tuples(st.just("pass_time"), st.sampled_from([50, 100, 3_000, 11_000, 61_000])),
    st.tuples(st.just("pass_days"), st.sampled_from([1, 7])),
    st.tuples(st.just("sync")),
    st.tuples(st.just("sync")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("disk_full")),
    st.tuples(st.just("room_again")),
    st.tuples(st.just("failing_sync")),
    st.tuples(st.just("crash"), st.integers(0, 2**32)),
)


@dataclass
class Client:
    """What one client knows of its membership. Odd ones are static members."""

    number: int
    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] = ()
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    @property
    def instance(self) -> str | None:
        return f"i{self.number}" if self.number % 2 else None


class Story:
    """Carries out operations and checks the laws after each."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.bench.store.create_topic(OFFSETS_TOPIC, 1, SMALL_SEGMENTS, internal=True)
        self.clients = {(group, number): Client(number) for group in ("g", "h") for number in range(4)}
        self.next_offset = 0
        self.appended: list[Change] = []
        self.listen()

    def listen(self) -> None:
        """Note every change that is appended."""
        journal = self.bench.groups.journal
        write = journal._write_batch

        def noted(changes: Any, *more: Any) -> None:
            write(changes, *more)
            self.appended.extend(changes)

        journal._write_batch = noted  # type: ignore[method-assign]

    async def do(self, name: str, *arguments: Any) -> None:
        await getattr(self, name)(*arguments)
        await self.bench.settle()
        for client in self.clients.values():
            for task in client.tasks:
                if task.done() and not task.cancelled():
                    task.result()
            client.tasks = [task for task in client.tasks if not task.done()]

    # --- operations ---

    async def join(self, group: str, number: int, protocol: str) -> None:
        client = self.clients[group, number]
        protocols = ((protocol, b""), ("range", b"r"), ("sticky", b"s"))
        call = self.bench.join(group, client.member_id, client.instance, protocols=protocols, session_timeout_ms=10_000)

        async def ask() -> None:
            answer = await call
            self.joined(client, answer)

        client.tasks.append(await self.bench.start(ask()))

    def joined(self, client: Client, answer: JoinAnswer) -> None:
        if answer.code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID):
            client.member_id = ""
        elif answer.code is Code.NONE:
            client.member_id, client.generation = answer.member_id, answer.generation
            client.leads = tuple(member.member_id for member in answer.members)

    async def sync_group(self, group: str, number: int) -> None:
        client = self.clients[group, number]
        assignments = {member_id: f"{member_id}@{client.generation}".encode() for member_id in client.leads}
        call = self.bench.sync_group(client.member_id, client.generation, assignments, group, client.instance)

        async def ask() -> None:
            answer = await call
            if answer.code is Code.NONE:
                stored = self.bench.groups.journal.durable.groups[group]
                assert answer.assignment in [member.assignment for member in stored.members]

        client.tasks.append(await self.bench.start(ask()))

    async def rebalance(self, group: str) -> None:
        """All clients that do not wait already join, and then all of them sync."""
        for number in range(4):
            if not self.clients[group, number].tasks:
                await self.join(group, number, "range")
        await self.bench.pass_time(200, sync=False)
        for number in range(4):
            await self.sync_group(group, number)

    async def heartbeat(self, group: str, number: int) -> None:
        client = self.clients[group, number]
        self.bench.groups.heartbeat(group, client.member_id, client.instance, client.generation)

    async def leave(self, group: str, number: int) -> None:
        client = self.clients[group, number]
        client.tasks.append(
            await self.bench.start(self.bench.groups.leave(group, [Leaver(client.member_id, client.instance)]))
        )

    async def commit(self, group: str, number: int, partition: int) -> None:
        client = self.clients[group, number]
        await self._commit(client, group, client.member_id, client.generation, partition, client.instance)

    async def commit_simple(self, group: str, partition: int) -> None:
        await self._commit(self.clients[group, 0], group, "", -1, partition, None)

    async def _commit(
        self, client: Client, group: str, member_id: str, generation: int, partition: int, instance: str | None
    ) -> None:
        self.next_offset += 1
        offset = self.next_offset
        call = self.bench.commit(
            offset, group=group, member_id=member_id, generation=generation, partition=partition, instance=instance
        )

        async def ask() -> None:
            if await call is Code.NONE:
                on_disk = [change.value.offset for change in self.on_disk() if is_commit(change)]
                assert offset in on_disk

        client.tasks.append(await self.bench.start(ask()))

    async def delete_group(self, group: str) -> None:
        self.clients[group, 0].tasks.append(await self.bench.start(self.bench.groups.delete_groups([group])))

    async def delete_offset(self, group: str, partition: int) -> None:
        call = self.bench.groups.delete_offsets(group, [("t", partition)])
        self.clients[group, 0].tasks.append(await self.bench.start(call))

    async def delete_topic(self) -> None:
        self.bench.store.delete_topic("t")
        self.bench.groups.on_topic_deleted("t")
        self.bench.store.create_topic("t", 4)

    async def pass_time(self, ms: int) -> None:
        await self.bench.pass_time(ms, sync=False)

    async def pass_days(self, days: int) -> None:
        self.bench.clock.jump(days * DAY_MS)
        self.bench.groups.expire()

    async def sync(self) -> None:
        await self.bench.sync()

    async def compact(self) -> None:
        with contextlib.suppress(OSError):
            for job in self.bench.store.jobs():
                event(type(job).__name__)
                job.run()
                job.finish()
        await self.bench.sync()

    async def disk_full(self) -> None:
        self.bench.files.fail("write", OFFSETS_TOPIC, errno.ENOSPC)

    async def room_again(self) -> None:
        self.bench.files.heal()

    async def failing_sync(self) -> None:
        self.bench.files.fail("sync", OFFSETS_TOPIC)
        await self.bench.sync()
        self.bench.files.heal()

    async def crash(self, seed: int) -> None:
        for client in self.clients.values():
            for task in client.tasks:
                task.cancel()
        on_disk = len(self.on_disk())
        self.bench.crash(seed)
        loaded = self.bench.groups.journal.durable
        prefixes = (fold(self.appended[:count]) for count in range(len(self.appended), on_disk - 1, -1))
        survived = next((count for count, state in enumerate(prefixes) if state == loaded), None)
        assert survived is not None, "not a prefix of what was appended"
        self.appended = self.appended[: len(self.appended) - survived]
        self.listen()

    # --- laws ---

    def on_disk(self) -> list[Change]:
        """Of the appended changes those that are on disk."""
        partition = self.bench.store.partition(OFFSETS_TOPIC, 0)
        return self.appended[: len(self.appended) - (partition.end_offset - partition.synced_offset)]

    def check(self) -> None:
        journal = self.bench.groups.journal
        if self.bench.store.partition(OFFSETS_TOPIC, 0).failed:
            assert journal.latest == journal.durable
        else:
            assert journal.latest == fold(self.appended)
            assert journal.latest.offsets == self.bench.folded().offsets
        assert journal.durable == fold(self.on_disk())
        assert journal.latest.offsets.keys() <= journal.latest.groups.keys()
        for group_id, group in self.bench.groups._groups.items():
            if group.phase is Phase.STABLE and not journal._pending:
                event("stable group compared")
                assert journal.durable.groups[group_id] == stored_form(group)


def stored_form(group: Any) -> GroupMetadata:
    assignments = {member.member_id: member.assignment for member in group.members.values()}
    return group._metadata(assignments)  # type: ignore[no-any-return]


def is_commit(change: Change) -> bool:
    return isinstance(change, OffsetChange) and change.value is not None


@settings(max_examples=150)
@given(st.lists(OPERATIONS, min_size=5, max_size=80), st.integers(0, 2**32))
def test_the_state_is_the_fold_of_the_log_live_and_after_a_crash(operations: list[tuple[Any, ...]], seed: int) -> None:
    async def tell() -> None:
        story = Story()
        for operation in operations:
            await story.do(*operation)
            story.check()
        await story.do("crash", seed)
        story.check()

    asyncio.run(tell())
