"""The groups' log: every change of groups and offsets is a record of ``__consumer_offsets`` before it is true.

Two folds of the same log: ``latest`` has all that was appended (what writers must look at, so that they do not miss
each other's work), ``durable`` only what is on disk (what readers are told, and what a restart would find).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.broker.groups.latest_records import last_of_each_key
from headrace.broker.groups.records import Change, decode, encode
from headrace.broker.groups.settings import GroupSettings
from headrace.broker.groups.state import GroupState
from headrace.errors import CorruptMessage, HeadraceError, PartitionFailed
from headrace.log.group_commit import GroupCommit
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore

__all__ = ["OFFSETS_TOPIC", "Journal"]

OFFSETS_TOPIC = "__consumer_offsets"

log = logging.getLogger(__name__)

_CHANGES_PER_BATCH = 10_000

Done = Callable[[HeadraceError | None], None]


class _Pending(NamedTuple):
    next_offset: int
    changes: Sequence[Change]
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


class Journal:
    """Writes changes and folds them, in the order of the log."""

    def __init__(self, store: LogStore, commit: GroupCommit, settings: GroupSettings) -> None:
        self.latest = GroupState()
        self.durable = GroupState()
        self._store = store
        self._commit = commit
        self._settings = settings
        self._pending: deque[_Pending] = deque()
        self._partition: PartitionLog | None = None

    def load(self) -> None:
        """Fold what is in the log; once, before anything else."""
        if OFFSETS_TOPIC not in self._store.topics:
            return
        self._sync_what_was_found()
        state = GroupState()
        for offset, _, key, value, _ in last_of_each_key(self.partition()):
            try:
                change = decode(key, value)
            except CorruptMessage as error:
                log.warning("%s at offset %d is left out: %s", OFFSETS_TOPIC, offset, error)
                continue
            if change is not None:
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

    def partition(self) -> PartitionLog:
        """The one partition; made when it is first asked for."""
        if self._partition is None or self._partition.deleted:
            if OFFSETS_TOPIC not in self._store.topics:
                overrides = {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(max(self._settings.offsets_topic_segment_bytes, 1 << 20)),
                }
                self._store.create_topic(OFFSETS_TOPIC, 1, overrides, internal=True)
            self._partition = self._store.partition(OFFSETS_TOPIC, 0)
        return self._partition

    def write(self, changes: Sequence[Change], done: Done) -> None:
        """Append all of it; ``done`` is called once it is durable and part of ``durable``, or has failed.

        One batch, so all or nothing, unless it is very much. Raises, and changes nothing, if it cannot be appended.
        """
        if not changes:
            done(None)
        for start in range(0, len(changes), _CHANGES_PER_BATCH):
            part = changes[start : start + _CHANGES_PER_BATCH]
            is_last = start + len(part) == len(changes)
            self._write_batch(part, done if is_last else _ignore)

    def _write_batch(self, changes: Sequence[Change], done: Done) -> None:
        now_ms = self._store.clock.now_ms()
        partition = self.partition()
        info = partition.append_records([(now_ms, *encode(change), ()) for change in changes], acks_all=True)
        for change in changes:
            self.latest.apply(change)
        next_offset = info.last_offset + 1
        self._pending.append(_Pending(next_offset, changes, done))
        self._commit.when_durable(partition, next_offset, lambda error: self._on_durable(partition, next_offset, error))

    async def store(self, changes: Sequence[Change]) -> None:
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

    def reset(self) -> None:
        """The topic was deleted: nothing is known any more, and what was not durable never will be."""
        pending, self._pending = self._pending, deque()
        self.latest, self.durable = GroupState(), GroupState()
        self._partition = None
        for entry in pending:
            entry.done(PartitionFailed(f"{OFFSETS_TOPIC} was deleted"))

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
