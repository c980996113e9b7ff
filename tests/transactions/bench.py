"""A transaction coordinator over the real log, on a disk in memory, with time, timers and syncs moved by hand."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from headrace import _kernel
from headrace.broker import error_codes
from headrace.broker.codecs.produce import ProduceRequest
from headrace.broker.groups.codes import Code
from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.groups.records import CommittedOffset
from headrace.broker.handlers import produce
from headrace.broker.transactions.coordinator import OFFSETS_PLACE, Producer, TransactionCoordinator
from headrace.broker.transactions.records import Transaction
from headrace.broker.transactions.settings import TransactionSettings
from headrace.broker.transactions.state import TransactionState
from headrace.errors import HeadraceError
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.testing.clock import ManualClock
from headrace.testing.files import LossyFiles
from tests.groups.bench import HandCommit, HandTimers

FOLDER = Path("/data")
T = TypeVar("T")


class Sent:
    """A batch that was sent: refused, appended, or appended and acknowledged."""

    def __init__(self, code: int, offset: int, waits: int) -> None:
        self.code = code
        self.offset = offset
        self._waits = waits

    @property
    def acknowledged(self) -> bool:
        return self.code == 0 and self._waits == 0

    def done(self, error: HeadraceError | None) -> None:
        if error is None:
            self._waits -= 1


class Bench:
    def __init__(self, *, partitions: int = 2, topic_config: dict[str, str] | None = None) -> None:
        self.clock = ManualClock()
        self.files = LossyFiles()
        self.partitions = partitions
        self.topic_config = topic_config or {}
        self.connections = itertools.count(1)
        self.open()

    def open(self) -> None:
        self.store = LogStore.open(FOLDER, files=self.files, clock=self.clock)
        if "t" not in self.store.topics:
            self.store.create_topic("t", self.partitions, self.topic_config)
        self.commit_ = HandCommit()
        self.timers = HandTimers(self.clock)
        hands: Any = self.commit_
        self.groups = GroupCoordinator(self.store, hands, self.clock, self.timers)
        self.groups.load()
        self.groups.ensure_log()
        self.transactions = TransactionCoordinator(
            self.store, hands, self.groups, self.clock, self.timers, TransactionSettings()
        )
        self.transactions.load()
        self.broker: Any = SimpleNamespace(transactions=self.transactions, find_topic=self._find_topic)

    def kill(self) -> None:
        """The process dies; the machine goes on, so nothing that was written is lost."""
        self.files.locked.clear()
        self.open()

    def lose_power(self, seed: int = 0) -> None:
        """The machine dies: what was not synced may be lost."""
        self.files = self.files.crash(seed)
        self.open()

    def _find_topic(self, name: str) -> tuple[Any, int]:
        return self.store.topics.get(name), 0

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
        """One round of syncs; what follows from it waits for the next."""
        self.commit_.sync()
        await self.settle()

    async def sync_all(self) -> None:
        while self.commit_._waiting:
            await self.sync()

    async def ask(self, call: Coroutine[Any, Any, T]) -> T:
        """A request that needs nothing but the disk."""
        task = await self.start(call)
        await self.sync_all()
        assert task.done(), "it waits for more than the disk"
        return task.result()

    async def refusal(self, call: Coroutine[Any, Any, Any]) -> int:
        """The code with which a request is refused."""
        try:
            await self.ask(call)
        except HeadraceError as error:
            return getattr(error, "code", error.kafka_code)
        return error_codes.NONE

    async def pass_time(self, ms: int, *, sync: bool = True) -> None:
        end = round(self.clock.monotonic() * 1000) + ms
        while (call := self.timers.next_due(end)) is not None:
            self.clock.advance(max(call[0] - round(self.clock.monotonic() * 1000), 0))
            call[1]()
            await self.settle()
            if sync:
                await self.sync_all()
        self.clock.advance(end - round(self.clock.monotonic() * 1000))

    # --- requests ---

    def init(
        self, name: str = "x", timeout_ms: int = 60_000, expected: tuple[int, int] | None = None
    ) -> Coroutine[Any, Any, tuple[int, int]]:
        return self.transactions.initialise(name, timeout_ms, expected)

    async def producer(self, name: str = "x", timeout_ms: int = 60_000) -> Producer:
        return Producer(name, *await self.ask(self.init(name, timeout_ms)))

    def add(self, producer: Producer, *partitions: int, connection_id: int = 1) -> Coroutine[Any, Any, None]:
        places = [("t", index) for index in partitions]
        return self.transactions.add_partitions(producer, places, version=0, connection_id=connection_id)

    def add_offsets(self, producer: Producer, connection_id: int = 1) -> Coroutine[Any, Any, None]:
        return self.transactions.add_partitions(producer, [OFFSETS_PLACE], version=0, connection_id=connection_id)

    def end(
        self, producer: Producer, commit: bool, *, version: int = 0, connection_id: int = 1
    ) -> Coroutine[Any, Any, tuple[int, int]]:
        return self.transactions.end(producer, commit=commit, version=version, connection_id=connection_id)

    def send(
        self, producer: Producer, value: bytes, sequence: int = 0, *, partition: int = 0, version: int = 9
    ) -> Sent:
        """Through the code of the Produce handler, with acks=all."""
        frame = memoryview(
            _kernel.build_batch(
                [(self.clock.now_ms(), b"k", value, [])],
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )
        request = ProduceRequest(producer.transactional_id, -1, 1000, [("t", [(partition, 0, len(frame))])])
        results, waits, _ = produce._append_all(self.broker, request, version, frame)
        (result,) = results[0][1]
        sent = Sent(result.error_code, result.base_offset, len(waits))
        for log, next_offset, _, _ in waits:
            self.commit_.when_durable(log, next_offset, sent.done)
        return sent

    async def commit_offset(
        self, producer: Producer, offset: int, *, partition: int = 0, group: str = "g", implicit: bool = False
    ) -> Code:
        """As the TxnOffsetCommit handler does it."""
        self.transactions.admit(producer, OFFSETS_PLACE, implicit=implicit)
        value = CommittedOffset(offset, -1, "", self.clock.now_ms(), topic_id=self.store.topics["t"].id)
        code = await self.groups.commit_in_transaction(
            group, "", None, -1, [("t", partition, value)], (producer.producer_id, producer.epoch)
        )
        await self.transactions.until_durable(producer.transactional_id)
        return code

    # --- what is there ---

    def log(self, partition: int = 0) -> PartitionLog:
        return self.store.partition("t", partition)

    def state(self, name: str = "x") -> Transaction:
        return self.transactions.journal.latest.transactions[name]

    def committed(self, partition: int = 0) -> list[bytes]:
        """What a reader of committed records gets, as a client filters it by the list of aborted transactions."""
        log, offset, found = self.log(partition), 0, []
        while True:
            result = log.read(offset, 1 << 20, committed=True)
            if not result.data:
                return found
            found += _visible(bytes(result.data), result.aborted, offset)
            offset = result.next_offset

    def offset(self, partition: int = 0, group: str = "g") -> int | None:
        committed = self.groups.offset(group, "t", partition)
        return None if committed is None else committed.offset

    def replayed(self) -> TransactionState:
        """The fold of the state topic as it is now."""
        journal = self.transactions.journal
        state = journal.new_state()
        for change in journal._replay():
            state.apply(change)
        return state


def _visible(data: bytes, aborted: list[tuple[int, int]], start: int) -> list[bytes]:
    found = []
    starts = sorted(aborted, key=lambda one: one[1])
    ignored: set[int] = set()
    headers, _, _ = _kernel.scan(data)
    for header in headers:
        position, size, base, _, attributes, _, _, _, producer_id, *_ = header
        while starts and starts[0][1] <= base:
            ignored.add(starts.pop(0)[0])
        records = _kernel.records(data[position : position + size])
        if attributes & 0x20:
            if records and records[0][2] == b"\0\0\0\0":
                ignored.discard(producer_id)
        elif not (attributes & 0x10 and producer_id in ignored):
            found += [record[3] or b"" for record in records if record[0] >= start]
    return found
