"""The share groups' log: every change of a share partition is a record of ``__share_group_state`` before it is true.

Changes of one partition that come while a write is under way go into the next one together: a snapshot says all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from headrace.broker.journal import Done, Journal
from headrace.broker.shares.records import ShareChange, ShareKey, ShareState, decode, decode_key, encode
from headrace.errors import CorruptMessage, HeadraceError
from headrace.log.batch import BatchHeader
from headrace.log.group_commit import GroupCommit
from headrace.log.store import LogStore

__all__ = ["STATE_TOPIC", "Savable", "Saver", "ShareJournal", "ShareStates"]

STATE_TOPIC = "__share_group_state"

log = logging.getLogger(__name__)


class ShareStates:
    """The fold of the log: the newest state of every share partition."""

    __slots__ = ("partitions",)

    def __init__(self) -> None:
        self.partitions: dict[ShareKey, ShareState] = {}

    def apply(self, change: ShareChange) -> None:
        """Take one change in."""
        if change.value is None:
            self.partitions.pop(change.key, None)
        else:
            self.partitions[change.key] = change.value

    def copy(self) -> ShareStates:
        """An independent copy."""
        twin = ShareStates()
        twin.partitions = dict(self.partitions)
        return twin

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShareStates) and self.partitions == other.partitions

    __hash__ = None  # type: ignore[assignment]


class ShareJournal(Journal[ShareChange, ShareStates]):
    """Writes changes of share partitions and folds them.

    ``damaged`` has those whose newest record cannot be read: they are not served, because nobody knows what is settled.
    """

    topic = STATE_TOPIC

    def __init__(self, store: LogStore, commit: GroupCommit, segment_bytes: int) -> None:
        super().__init__(store, commit)
        self._segment_bytes = segment_bytes
        self.damaged: set[ShareKey] = set()

    def new_state(self) -> ShareStates:
        """No partitions."""
        return ShareStates()

    def segment_bytes(self) -> int:
        """As the operator has it."""
        return self._segment_bytes

    def encode(self, change: ShareChange) -> tuple[bytes, bytes | None]:
        """The record of a change."""
        return encode(change)

    def decode(self, header: BatchHeader | None, key: bytes | None, value: bytes | None) -> ShareChange | None:
        """The change of a record."""
        change = decode(key, value)
        if change is not None:
            self.damaged.discard(change.key)
        return change

    def found_damaged(self, offset: int, key: bytes | None, error: CorruptMessage) -> None:
        """Remember whom it is about, and tell the operator; the record stays in the log."""
        try:
            share = decode_key(key)
        except CorruptMessage:
            share = None
        if share is not None:
            self.damaged.add(share)
        log.error("%s at offset %d is damaged, and what it is about is not served: %s", STATE_TOPIC, offset, error)


class Savable(Protocol):
    """What can say how it is now."""

    def change(self) -> ShareChange:
        """The change to write."""
        ...


class Saver:
    """Writes what changed: one record per share partition and round, however many changes there were."""

    def __init__(self, journal: ShareJournal, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._journal = journal
        self._call_soon = call_soon
        self._dirty: dict[Savable, list[Done]] = {}
        self._busy = False

    def save(self, share: Savable, done: Done | None = None) -> None:
        """Write how it is; ``done`` is called once that is durable, or failed."""
        waiting = self._dirty.setdefault(share, [])
        if done is not None:
            waiting.append(done)
        if not self._busy:
            self._busy = True
            self._call_soon(self._write)

    async def saved(self, share: Savable) -> None:
        """Write how it is, and return when that is durable. Raises if it is not."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: HeadraceError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.save(share, done)
        await future

    def _write(self) -> None:
        dirty, self._dirty = self._dirty, {}
        waiting = [done for dones in dirty.values() for done in dones]
        try:
            self._journal.write([share.change() for share in dirty], lambda error: self._written(waiting, error))
        except HeadraceError as error:
            log.error("the state of share groups could not be written: %s", error)
            self._written(waiting, error)

    def _written(self, waiting: list[Done], error: HeadraceError | None) -> None:
        self._busy = bool(self._dirty)
        if self._busy:
            self._call_soon(self._write)
        for done in waiting:
            done(error)
