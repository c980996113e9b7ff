"""The groups' log: every change of groups and offsets is a record of ``__consumer_offsets`` before it is true.

Offsets that are part of a transaction are records of a batch of that transaction, and become true where its marker
lies. Because compaction keeps the last *record* of a key, whoever ends a transaction with a commit first repeats its
offsets as ordinary records: then the marker's place counts before and after a compaction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import groupby

from headrace import _kernel
from headrace.broker.groups.records import (
    Change,
    OffsetChange,
    TransactionalOffset,
    TransactionEnd,
    decode,
    encode,
    group_of,
)
from headrace.broker.groups.settings import GroupSettings
from headrace.broker.groups.state import GroupState
from headrace.broker.journal import Journal as CoordinatorJournal
from headrace.broker.markers import is_commit, marker
from headrace.errors import CorruptMessage
from headrace.log.batch import BatchHeader
from headrace.log.group_commit import GroupCommit
from headrace.log.store import LogStore

__all__ = ["OFFSETS_TOPIC", "Journal"]

OFFSETS_TOPIC = "__consumer_offsets"

log = logging.getLogger(__name__)


class Journal(CoordinatorJournal[Change, GroupState]):
    """Writes changes of groups and offsets and folds them.

    ``damaged`` has the groups with a record that cannot be read, and what is wrong with it: nobody may use them,
    because nobody knows their state. Nothing is written about them, so the record is still the last of its key.
    """

    topic = OFFSETS_TOPIC

    def __init__(self, store: LogStore, commit: GroupCommit, settings: GroupSettings) -> None:
        super().__init__(store, commit)
        self._settings = settings
        self.damaged: dict[str, str] = {}

    def new_state(self) -> GroupState:
        """No groups."""
        return GroupState()

    def segment_bytes(self) -> int:
        """As the operator has it."""
        return self._settings.offsets_topic_segment_bytes

    def encode(self, change: Change) -> tuple[bytes, bytes | None]:
        """The record of a change that is not a marker."""
        return encode(change)

    def decode(self, header: BatchHeader | None, key: bytes | None, value: bytes | None) -> Change | None:
        """A record's change; in a transaction's batch it waits for the marker."""
        if header is not None and header.is_control:
            commit = is_commit(key)
            return None if commit is None else TransactionEnd(header.producer_id, header.producer_epoch, commit)
        change = decode(key, value)
        if header is not None and header.is_transactional and isinstance(change, OffsetChange):
            return TransactionalOffset(header.producer_id, header.producer_epoch, change)
        return change

    def found_damaged(self, offset: int, key: bytes | None, error: CorruptMessage) -> None:
        """Remember whom it is about, and tell the operator; the record stays in the log."""
        try:
            group = group_of(key)
        except CorruptMessage:
            log.error("%s at offset %d is damaged, and does not even say its group: %s", OFFSETS_TOPIC, offset, error)
            return
        self.damaged[group] = f"the record at offset {offset} of {OFFSETS_TOPIC} cannot be read: {error}"
        log.error("group %r is not served: %s", group, self.damaged[group])

    def reset(self) -> None:
        """The topic was deleted, and damage with it."""
        self.damaged.clear()
        super().reset()

    def runs(self, changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
        """A marker stands alone, and so do the offsets of each transaction."""
        for _, run in groupby(enumerate(changes), lambda item: _batch_of(*item)):
            yield [change for _, change in run]

    def build(self, changes: Sequence[Change], now_ms: int) -> bytearray:
        """A batch of a transaction, a marker, or an ordinary batch."""
        first = changes[0]
        if isinstance(first, TransactionEnd):
            epoch = self.partition().leader_epoch
            return marker(first.producer_id, first.epoch, commit=first.commit, coordinator_epoch=epoch, now_ms=now_ms)
        if isinstance(first, TransactionalOffset):
            return _kernel.build_batch(
                [(now_ms, *encode(change), ()) for change in changes],
                producer_id=first.producer_id,
                producer_epoch=first.epoch,
                base_sequence=0,
                transactional=True,
            )
        return super().build(changes, now_ms)


def _batch_of(number: int, change: Change) -> object:
    if isinstance(change, TransactionEnd):
        return number
    return (change.producer_id, change.epoch) if isinstance(change, TransactionalOffset) else None
