"""A coordinator's log: every change of its state is a record of an internal topic before it is true.

Two folds of the same log: ``latest`` has all that was appended (what writers must look at, so that they do not miss
each other's work), ``durable`` only what is on disk (what readers are told, and what a restart would find).

A coordinator makes its own kind of journal: which topic, which state, and how changes become batches and back.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from headrace import _kernel
from headrace.broker.latest_records import last_of_each_key
from headrace.errors import CorruptMessage, CorruptRange, HeadraceError, PartitionFailed
from headrace.log.batch import BatchHeader
from headrace.log.group_commit import GroupCommit
from headrace.log.partition import Origin, PartitionLog
from headrace.log.store import LogStore

__all__ = ["Done", "Journal", "State"]

log = logging.getLogger(__name__)

_CHANGES_PER_BATCH = 10_000
_SEGMENT_MIN_BYTES = 1 << 20

C = TypeVar("C")
C_contra = TypeVar("C_contra", contravariant=True)

Done = Callable[[HeadraceError | None], None]


class State(Protocol[C_contra]):
    """What changes are folded into."""

    def apply(self, change: C_contra, /) -> None:
        """Take one change in."""
        ...

    def copy(self) -> Self:
        """An independent copy."""
        ...


S = TypeVar("S", bound=State)  # type: ignore[type-arg]


class _Pending(NamedTuple):
    next_offset: int
    changes: Sequence[object]
    done: Done


def _ignore(error: HeadraceError | None) -> None:
    """A later batch of the same write says how it went."""


class _Waiter:
    """A future that is done when a write is. Who waits for it may have gone."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(self, error: HeadraceError | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


class Journal(ABC, Generic[C, S]):
    """Writes changes and folds them, in the order of the log."""

    topic: ClassVar[str]

    def __init__(self, store: LogStore, commit: GroupCommit) -> None:
        self.latest = self.new_state()
        self.durable = self.new_state()
        self._store = store
        self._commit = commit
        self._pending: deque[_Pending] = deque()
        self._partition: PartitionLog | None = None

    # What a kind of journal says ---------------------------------------------------------------------------------

    @abstractmethod
    def new_state(self) -> S:
        """The fold of nothing."""

    @abstractmethod
    def segment_bytes(self) -> int:
        """How large a segment of the topic is to be."""

    @abstractmethod
    def encode(self, change: C) -> tuple[bytes, bytes | None]:
        """Key and value of the record that says this."""

    @abstractmethod
    def decode(self, header: BatchHeader | None, key: bytes | None, value: bytes | None) -> C | None:
        """What a record says; None if it is nothing that matters here. CorruptMessage if it is damaged.

        The header of its batch tells of transactions; there is none if the record is known to be committed.
        """

    def runs(self, changes: Sequence[C]) -> Iterable[Sequence[C]]:
        """The changes in parts, each of which goes into a batch of its own."""
        return (changes,)

    def build(self, changes: Sequence[C], now_ms: int) -> bytearray:
        """One batch of these changes."""
        return _kernel.build_batch([(now_ms, *self.encode(change), ()) for change in changes])

    def found_damaged(self, offset: int, key: bytes | None, error: CorruptMessage) -> None:
        """A record could not be decoded while loading; it is kept in the log."""
        log.warning("%s at offset %d is left out: %s", self.topic, offset, error)

    # Life --------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Fold what is in the log; once, before anything else."""
        if self.topic not in self._store.topics:
            return
        self._sync_what_was_found()
        state = self.new_state()
        for change in self._replay():
            state.apply(change)
        self.durable = state
        self.latest = state.copy()

    def _sync_what_was_found(self) -> None:
        """After a crash of the process the end of the log may be in the page cache only."""
        partition = self.partition()
        job = partition.start_sync()
        if job is not None:
            try:
                job.run()
            except OSError as error:
                partition.fail(f"a sync failed: {error.strerror or error}")
            else:
                partition.finish_sync(job)

    def _replay(self) -> Iterator[C]:
        """Every change that counts, of a key whose changes replace each other only the last."""
        partition = self.partition()
        start = partition.log_start
        try:
            stable = last_of_each_key(partition)
        except CorruptRange as damaged:
            log.error("%s is damaged, what can be read of it is used: %s", partition.name, damaged)
        else:
            start = partition.last_stable_offset
            yield from self._decoded(None, stable)
        for header, records in partition.replay_batches(start):
            yield from self._decoded(header, records)

    def _decoded(self, header: BatchHeader | None, records: Iterable[_kernel.Record]) -> Iterator[C]:
        for offset, _, key, value, _ in records:
            try:
                change = self.decode(header, key, value)
            except CorruptMessage as error:
                self.found_damaged(offset, key, error)
            else:
                if change is not None:
                    yield change

    def partition(self) -> PartitionLog:
        """The one partition; made when it is first asked for."""
        if self._partition is None or self._partition.deleted:
            if self.topic not in self._store.topics:
                overrides = {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(max(self.segment_bytes(), _SEGMENT_MIN_BYTES)),
                }
                self._store.create_topic(self.topic, 1, overrides, internal=True)
            self._partition = self._store.partition(self.topic, 0)
        return self._partition

    def reset(self) -> None:
        """The topic was deleted: nothing is known any more, and what was not durable never will be."""
        pending, self._pending = self._pending, deque()
        self.latest, self.durable = self.new_state(), self.new_state()
        self._partition = None
        for entry in pending:
            entry.done(PartitionFailed(f"{self.topic} was deleted"))

    # Writing -----------------------------------------------------------------------------------------------------

    def write(self, changes: Sequence[C], done: Done, *, can_wait: bool = False) -> None:
        """Append all of it; ``done`` is called once it is durable and part of ``durable``, or has failed.

        One batch, so all or nothing, unless it is very much or of several runs. Raises if it cannot be appended.
        What can wait gets durable with what is written next, or when the caller asks for it.
        """
        if not changes:
            done(None)
        parts = [
            run[start : start + _CHANGES_PER_BATCH]
            for run in self.runs(changes)
            for start in range(0, len(run), _CHANGES_PER_BATCH)
        ]
        for number, part in enumerate(parts, 1):
            self._write_batch(part, done if number == len(parts) else _ignore, can_wait)

    def _write_batch(self, changes: Sequence[C], done: Done, can_wait: bool) -> None:
        partition = self.partition()
        batch = self.build(changes, self._store.clock.now_ms())
        info = partition.append(batch, acks_all=True, origin=Origin.COORDINATOR)
        for change in changes:
            self.latest.apply(change)
        next_offset = info.last_offset + 1
        self._pending.append(_Pending(next_offset, changes, done))
        self._commit.when_durable(
            partition, next_offset, lambda error: self._on_durable(partition, next_offset, error), can_wait=can_wait
        )

    async def store(self, changes: Sequence[C]) -> None:
        """Write, and return when it is durable. Raises if it is not."""
        waiter = _Waiter()
        self.write(changes, waiter.done)
        await waiter.future

    async def settle(self) -> None:
        """Return when all that has been appended so far is durable. Raises if it is not."""
        if self._pending:
            waiter = _Waiter()
            self._pending.append(_Pending(self._pending[-1].next_offset, (), waiter.done))
            await waiter.future

    def _fail(self, next_offset: int, error: HeadraceError) -> None:
        """A sync failed. The log takes no more writes, so what did not get on disk is not to be built upon."""
        failed = [entry for entry in self._pending if entry.next_offset == next_offset]
        for entry in failed:
            self._pending.remove(entry)
        if not self._pending:
            self.latest = self.durable.copy()
        for entry in failed:
            entry.done(error)

    def _on_durable(self, partition: PartitionLog, next_offset: int, error: HeadraceError | None) -> None:
        if partition is not self._partition:
            return
        if error is not None:
            self._fail(next_offset, error)
            return
        while self._pending and self._pending[0].next_offset <= next_offset:
            entry = self._pending.popleft()
            for change in entry.changes:
                self.durable.apply(change)
            entry.done(None)
