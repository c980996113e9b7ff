"""A coordinator over the real log, on a disk in memory, with time, timers and syncs moved by hand."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from headrace.broker.groups.codes import Code
from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.groups.journal import OFFSETS_TOPIC
from headrace.broker.groups.messages import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from headrace.broker.groups.records import Change, CommittedOffset, decode
from headrace.broker.groups.settings import GroupSettings
from headrace.broker.groups.state import GroupState
from headrace.errors import HeadraceError
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.testing.clock import ManualClock
from headrace.testing.files import LossyFiles
from tests.groups.lab import subscription

FOLDER = Path("/data")
T = TypeVar("T")
Done = Callable[[HeadraceError | None], None]


class HandCommit:
    """The group commit's promise, kept when ``sync`` is called."""

    def __init__(self) -> None:
        self._waiting: list[tuple[PartitionLog, int, Done]] = []

    def when_durable(self, partition: PartitionLog, next_offset: int, done: Done, *, can_wait: bool = False) -> None:
        if partition.failed is not None:
            done(partition.failure())
        elif partition.synced_offset >= next_offset:
            done(None)
        else:
            self._waiting.append((partition, next_offset, done))

    def request(self, partition: PartitionLog) -> None:
        """Whoever waits is served by the next sync in any case."""

    def sync(self) -> None:
        waiting, self._waiting = self._waiting, []
        for partition in {partition for partition, _, _ in waiting}:
            job = None if partition.deleted else partition.start_sync()
            if job is not None:
                try:
                    job.run()
                    partition.finish_sync(job)
                except OSError as error:
                    partition.fail(str(error))
        for partition, _, done in waiting:
            done(partition.gone() if partition.deleted else partition.failure())


class HandTimers:
    """Calls that come when the clock is moved."""

    class Timer:
        def __init__(self) -> None:
            self.cancelled = False

        def cancel(self) -> None:
            self.cancelled = True

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._order = itertools.count()
        self._calls: list[tuple[int, int, HandTimers.Timer, Callable[[], None]]] = []

    def call_later(self, delay: float, callback: Callable[[], None], /) -> HandTimers.Timer:
        timer = HandTimers.Timer()
        due = self._now() + max(-(-round(delay * 1_000_000) // 1000), 0)
        heapq.heappush(self._calls, (due, next(self._order), timer, callback))
        return timer

    def next_due(self, end: int) -> tuple[int, Callable[[], None]] | None:
        while self._calls and self._calls[0][0] <= end:
            due, _, timer, callback = heapq.heappop(self._calls)
            if not timer.cancelled:
                return due, callback
        return None

    def _now(self) -> int:
        return round(self._clock.monotonic() * 1000)


class Bench:
    def __init__(self, settings: GroupSettings | None = None, files: LossyFiles | None = None) -> None:
        self.settings = settings or GroupSettings()
        self.clock = ManualClock()
        self.numbers = itertools.count(1)
        self.files = files or LossyFiles()
        self.open()

    def open(self) -> None:
        self.store = LogStore.open(FOLDER, files=self.files, clock=self.clock)
        if "t" not in self.store.topics:
            self.store.create_topic("t", 4)
        self.commit_ = HandCommit()
        self.timers = HandTimers(self.clock)
        self.groups = GroupCoordinator(
            self.store,
            self.commit_,  # type: ignore[arg-type]
            self.clock,
            self.timers,
            self.settings,
            lambda: str(next(self.numbers)),
        )
        self.groups.load()

    def crash(self, seed: int) -> None:
        """Lose power and start again."""
        self.files = self.files.crash(seed)
        self.open()

    # --- steps ---

    async def start(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a request and let it come as far as it can without the disk."""
        task = asyncio.ensure_future(call)
        await self.settle()
        return task

    async def settle(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)

    async def sync(self) -> None:
        self.commit_.sync()
        await self.settle()

    async def ask(self, call: Coroutine[Any, Any, T]) -> T:
        """A request that needs nothing but the disk."""
        task = await self.start(call)
        await self.sync()
        assert task.done(), "it waits for more than the disk"
        return task.result()

    async def pass_time(self, ms: int, *, sync: bool = True) -> None:
        end = round(self.clock.monotonic() * 1000) + ms
        calls = itertools.count()
        while (call := self.timers.next_due(end)) is not None:
            self.clock.advance(max(call[0] - round(self.clock.monotonic() * 1000), 0))
            call[1]()
            assert next(calls) < 1000 + ms, "timers that call each other for ever"
            await self.settle()
            if sync:
                await self.sync()
        self.clock.advance(end - round(self.clock.monotonic() * 1000))

    # --- requests ---

    def join(
        self, group: str = "g", member_id: str = "", instance: str | None = None, **more: Any
    ) -> Coroutine[Any, Any, JoinAnswer]:
        options = {
            "client_id": "c",
            "client_host": "/h",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": (("range", subscription("t")),),
            "must_know_id": False,
        }
        return self.groups.join(group, JoinRequest(member_id=member_id, instance_id=instance, **(options | more)))

    def sync_group(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes],
        group: str = "g",
        instance: str | None = None,
    ) -> Coroutine[Any, Any, SyncAnswer]:
        return self.groups.sync(group, SyncRequest(member_id, instance, generation, None, None, assignments))

    def commit(
        self,
        offset: int,
        *,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        topic: str = "t",
        partition: int = 0,
        instance: str | None = None,
    ) -> Coroutine[Any, Any, Code]:
        topic_id = self.store.topics[topic].id
        value = CommittedOffset(offset, -1, "", self.clock.now_ms(), topic_id=topic_id)
        return self.groups.commit(group, member_id, instance, generation, [(topic, partition, value)])

    async def stable(self, count: int = 1, group: str = "g") -> list[str]:
        """A stable group; the members' ids. The first leads, all have their own id as assignment."""
        joins = [await self.start(self.join(group)) for _ in range(count)]
        while not all(task.done() for task in joins):
            await self.pass_time(100)
        members = [task.result().member_id for task in joins]
        assignments = {member_id: member_id.encode() for member_id in members}
        syncs = [await self.start(self.sync_group(each, 1, assignments, group)) for each in members]
        await self.sync()
        assert [task.result().assignment for task in syncs] == list(assignments.values())
        return members

    # --- what the log says ---

    def changes(self, below: int | None = None) -> list[Change]:
        if OFFSETS_TOPIC not in self.store.topics:
            return []
        partition = self.store.partition(OFFSETS_TOPIC, 0)
        found = [(offset, decode(key, value)) for offset, _, key, value, _ in partition.replay()]
        return [change for offset, change in found if change is not None and (below is None or offset < below)]

    def folded(self, below: int | None = None) -> GroupState:
        return fold(self.changes(below))

    def synced_offset(self) -> int:
        return self.store.partition(OFFSETS_TOPIC, 0).synced_offset if OFFSETS_TOPIC in self.store.topics else 0


def fold(changes: list[Change]) -> GroupState:
    state = GroupState()
    for change in changes:
        state.apply(change)
    return state
