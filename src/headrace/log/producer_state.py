"""What a partition remembers of each idempotent or transactional producer.

Per producer id: its epoch, the last five batches (sequences and offsets), and the first offset of its open transaction.
With it a batch that is sent again gets its first answer again, a batch that comes too early is refused, and the
last stable offset is known. The state is a fold over batch headers; a snapshot saves the fold from starting at 0.

The snapshot, a checked file: offset (i64), count (i32), then per producer: id (i64), epoch (i16), last timestamp (i64),
coordinator epoch (i32), open transaction's first offset (i64, -1 none), number of batches (i8), and per batch first and
last sequence (i32), first and last offset (i64), timestamp (i64).
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headrace.errors import InvalidProducerEpoch, InvalidTransactionState, OutOfOrderSequence
from headrace.log.batch import BatchHeader
from headrace.log.checked_file import DamagedFile, read_checked, write_checked
from headrace.log.files import Files
from headrace.log.segment_index import AbortedTransaction

__all__ = ["BATCHES_REMEMBERED", "ProducerBatch", "ProducerEntry", "ProducerState", "read_snapshot", "write_snapshot"]

BATCHES_REMEMBERED = 5
_MAX_SEQUENCE = 0x7FFFFFFF
_NO_EPOCH = -1

_HEAD = struct.Struct(">qi")
_PRODUCER = struct.Struct(">qhqiqb")
_BATCH = struct.Struct(">iiqqq")


class ProducerBatch(NamedTuple):
    """One of a producer's last batches."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class ProducerEntry:
    """One producer."""

    producer_id: int
    epoch: int = _NO_EPOCH
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    transaction_start: int = -1
    batches: deque[ProducerBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))


def _last_sequence(header: BatchHeader) -> int:
    last = header.base_sequence + header.last_offset_delta
    return last if last <= _MAX_SEQUENCE else last - _MAX_SEQUENCE - 1


def _follows(last: int, first: int) -> bool:
    return first == last + 1 or (last == _MAX_SEQUENCE and first == 0)


class ProducerState:
    """All producers of one partition."""

    __slots__ = ("_entries", "_open")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}

    def entries(self) -> list[ProducerEntry]:
        """Every producer known."""
        return list(self._entries.values())

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest open transaction."""
        return min(self._open.values()) if self._open else None

    def find_duplicate(self, header: BatchHeader) -> ProducerBatch | None:
        """The batch that this one repeats, if it is among the last five."""
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, _last_sequence(header)
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def open_transactions(self) -> list[tuple[int, int]]:
        """(producer id, epoch) of every transaction that has not ended here."""
        return [(producer_id, self._entries[producer_id].epoch) for producer_id in self._open]

    def ensure_epoch(self, header: BatchHeader) -> None:
        """Raise if the batch is of an older epoch."""
        entry = self._entries.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {entry.epoch}, this batch says {header.producer_epoch}."
            )

    def ensure_in_order(self, header: BatchHeader) -> None:
        """Raise if the batch is of an older epoch or does not follow the producer's last one."""
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch == _NO_EPOCH:
            return
        self.ensure_epoch(header)
        if header.is_control:
            return
        if entry.transaction_start >= 0 and not header.is_transactional:
            raise InvalidTransactionState(
                f"producer {header.producer_id} is in a transaction, this batch is not part of one."
            )
        first = header.base_sequence
        if header.producer_epoch > entry.epoch:
            if first != 0:
                raise OutOfOrderSequence(
                    f"the first batch of producer {header.producer_id} in epoch {header.producer_epoch} "
                    f"has sequence {first}, not 0."
                )
        elif not entry.batches:
            if first != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} begins epoch {entry.epoch} with sequence {first}, not 0."
                )
        elif not _follows(entry.batches[-1].last_sequence, first):
            raise OutOfOrderSequence(
                f"producer {header.producer_id} sent sequence {first} after {entry.batches[-1].last_sequence}."
            )

    def apply(self, header: BatchHeader, base_offset: int) -> None:
        """Take in a data batch that is in the log at ``base_offset``."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_id)
        if header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        last_offset = base_offset + header.last_offset_delta
        entry.batches.append(
            ProducerBatch(header.base_sequence, _last_sequence(header), base_offset, last_offset, header.max_timestamp)
        )
        entry.last_timestamp = header.max_timestamp
        if header.is_transactional and entry.transaction_start < 0:
            entry.transaction_start = base_offset
            self._open[header.producer_id] = base_offset

    def end_transaction(
        self,
        header: BatchHeader,
        base_offset: int,
        *,
        commit: bool,
        coordinator_epoch: int = -1,
    ) -> AbortedTransaction | None:
        """Take in a transaction marker; the transaction that it aborts, if it does."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_id)
        if header.producer_epoch > entry.epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_timestamp = header.max_timestamp
        entry.coordinator_epoch = coordinator_epoch
        start, entry.transaction_start = entry.transaction_start, -1
        self._open.pop(header.producer_id, None)
        if commit or start < 0:
            return None
        first_unstable = self.first_unstable_offset
        stable = first_unstable if first_unstable is not None else base_offset + 1
        return AbortedTransaction(header.producer_id, start, base_offset, stable)

    def expire(self, before_ms: int) -> int:
        """Forget producers without an open transaction that wrote nothing since; how many."""
        old = [
            e.producer_id for e in self._entries.values() if e.transaction_start < 0 and e.last_timestamp < before_ms
        ]
        for producer_id in old:
            del self._entries[producer_id]
        return len(old)

    def last_offsets(self) -> set[int]:
        """Last offset of every producer's newest batch: compaction keeps those batches, if empty."""
        return {e.batches[-1].last_offset for e in self._entries.values() if e.batches}

    def encode(self, offset: int) -> bytes:
        """The snapshot's payload: the state after all batches below ``offset``."""
        parts = [_HEAD.pack(offset, len(self._entries))]
        for e in self._entries.values():
            parts.append(
                _PRODUCER.pack(
                    e.producer_id, e.epoch, e.last_timestamp, e.coordinator_epoch, e.transaction_start, len(e.batches)
                )
            )
            parts.extend(_BATCH.pack(*batch) for batch in e.batches)
        return b"".join(parts)

    @staticmethod
    def decode(payload: bytes) -> tuple[ProducerState, int]:
        """The state and its offset."""
        state = ProducerState()
        offset, count = _HEAD.unpack_from(payload)
        at = _HEAD.size
        for _ in range(count):
            *fields, batches = _PRODUCER.unpack_from(payload, at)
            at += _PRODUCER.size
            entry = ProducerEntry(*fields)
            for _ in range(batches):
                entry.batches.append(ProducerBatch(*_BATCH.unpack_from(payload, at)))
                at += _BATCH.size
            state._entries[entry.producer_id] = entry
            if entry.transaction_start >= 0:
                state._open[entry.producer_id] = entry.transaction_start
        return state, offset


def write_snapshot(files: Files, path: Path, payload: bytes) -> None:
    """Replace the snapshot file."""
    write_checked(files, path, payload, keep_previous=True)


def read_snapshot(files: Files, path: Path) -> tuple[ProducerState, int] | None:
    """The newest whole snapshot, or None: then the state is made again from the log's start."""
    try:
        payload = read_checked(files, path)
        return None if payload is None else ProducerState.decode(payload)
    except (DamagedFile, struct.error):
        return None
