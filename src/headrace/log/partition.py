"""One partition: a row of segments, and what is true of it now.

Files, in the partition's folder: segments (``segment.py``), ``checkpoint`` (``checkpoint.py``), ``producers``
(``producer_state.py``). Invariant::

    log_start <= last_stable_offset <= high_watermark <= end_offset,  synced_offset <= end_offset

The log start on disk may lag behind that of a ring (``ring.py``), which follows from the end.

A record is visible to readers (below the high watermark) once it and everything before it has reached the durability
that its producer asked for: with acks=all on disk, otherwise in the page cache.

Thread rule: everything runs on the owner's thread (the event loop), except ``SyncJob.run`` and the ``run`` of
maintenance jobs, which touch only what they were given.
"""

from __future__ import annotations

import bisect
import enum
import errno
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from headrace import _kernel
from headrace.clock import Clock
from headrace.errors import (
    CorruptMessage,
    HeadraceError,
    InvalidRecord,
    InvalidTimestamp,
    OffsetOutOfRange,
    PartitionFailed,
    RecordTooLarge,
    StorageError,
    StorageFull,
    UnknownTopic,
)
from headrace.log import reading
from headrace.log.batch import (
    CODEC_MASK,
    NO_PRODUCER_ID,
    BatchHeader,
    set_offset_and_epoch,
)
from headrace.log.checkpoint import Checkpoint, write_checkpoint
from headrace.log.files import File, Files
from headrace.log.producer_state import ProducerEntry, ProducerState
from headrace.log.reading import ReadResult, SegmentRow
from headrace.log.segment import OpenFiles, Segment
from headrace.log.segment_index import AbortedTransaction
from headrace.log.topic_config import TopicConfig

__all__ = ["AppendInfo", "Origin", "PartitionLog", "PartitionPlace", "SyncJob", "note_control", "storage_error"]

_logger = logging.getLogger(__name__)

_CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_DECOMPRESSED_LIMIT = 64 << 20
_CORRUPT_KINDS = frozenset({"truncated", "length", "magic", "crc"})


class Origin(enum.Enum):
    """Who appends."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class AppendInfo(NamedTuple):
    """Where a batch went; of a duplicate, where the first one went."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start: int
    duplicate: bool


class PartitionPlace(NamedTuple):
    """What a partition is, where it lives and what it is given to work with."""

    topic: str
    topic_id: UUID
    number: int
    folder: Path
    files: Files
    clock: Clock
    open_files: OpenFiles


class SyncJob(NamedTuple):
    """Files to sync; ``run`` may be called on any thread, then ``PartitionLog.finish_sync`` on the owner's."""

    files: Files
    dirty: list[tuple[Segment, File, int]]
    folder: Path | None
    end_offset: int

    def run(self) -> None:
        """Return once all of it is on disk."""
        for _, file, _ in self.dirty:
            file.sync()
        if self.folder is not None:
            self.files.sync_folder(self.folder)


def storage_error(error: OSError, what: str) -> StorageError:
    """The error for a client; a full disk is told apart, because it passes."""
    if error.errno in _NO_ROOM:
        return StorageFull(f"{what}: no room left on the disk.", hint="Free some space; no restart is needed.")
    return StorageError(f"{what}: {error.strerror or error}.")


class PartitionLog(SegmentRow):
    """A durable, ordered row of record batches."""

    def __init__(
        self,
        place: PartitionPlace,
        config: TopicConfig,
        segments: list[Segment],
        checkpoint: Checkpoint,
        producers: ProducerState,
        leader_epoch: int,
    ) -> None:
        super().__init__(f"{place.topic}-{place.number}", segments)
        self.place = place
        self.config = config
        self.leader_epoch = leader_epoch
        self.epochs = checkpoint.epochs
        self.cleaned_to = checkpoint.cleaned_to
        self.log_start = checkpoint.log_start
        self._removed = checkpoint.log_start - checkpoint.dropped
        self.end_offset = segments[-1].end_offset
        self.high_watermark = self.end_offset
        self.producer_state = producers
        self.written_bytes = 0
        self.sent_bytes = 0
        self.failed: str | None = None
        self.deleted = False
        self.closed = False
        self.listeners: set[Callable[[PartitionLog], None]] = set()
        self.sync_wanted: Callable[[PartitionLog], None] | None = None
        self.removal_wanted: Callable[[PartitionLog], None] | None = None
        self._dirty = [s for s in segments if s.synced_size < s.size]
        self._folder_dirty = True
        self._durable_offset_wanted = 0
        self._appends_since_sync = 0
        self._last_append_time = -1
        self.synced_offset = self._dirty[0].base_offset if self._dirty else self.end_offset
        self.checkpointed_offset = -1
        self._checkpoint_lock = threading.Lock()
        self._written_checkpoint: Checkpoint | None = None
        self.checkpointed_ms = place.clock.now_ms()
        if not self.epochs or self.epochs[-1][0] < leader_epoch:
            self.epochs.append((leader_epoch, self.end_offset))

    def __repr__(self) -> str:
        return f"<PartitionLog {self.name} {self.log_start}..{self.end_offset}>"

    # What it is ------------------------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.place.topic

    @property
    def topic_id(self) -> UUID:
        """The topic's id."""
        return self.place.topic_id

    @property
    def index(self) -> int:
        """The partition's number."""
        return self.place.number

    @property
    def active(self) -> Segment:
        """The segment that is written to."""
        return self.segments[-1]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(s.size for s in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended."""
        unstable = self.producer_state.first_unstable_offset
        return self.high_watermark if unstable is None else min(max(unstable, self.log_start), self.high_watermark)

    @property
    def dropped(self) -> int:
        """How many records have gone because a ring was full."""
        return self.log_start - self._removed

    def producers(self) -> list[ProducerEntry]:
        """The producers that are remembered."""
        return self.producer_state.entries()

    # Appending -------------------------------------------------------------------------------------------------

    def append(self, batch: bytearray | memoryview, *, acks_all: bool, origin: Origin = Origin.CLIENT) -> AppendInfo:
        """Check one batch, give it the next offset and write it; the batch is changed in place."""
        if self.failed is not None:
            raise self._failure()
        config = self.config
        header = self._checked(batch, origin)
        if header.producer_id != NO_PRODUCER_ID:
            if origin is Origin.CLIENT:
                first = self.producer_state.find_duplicate(header)
                if first is not None:
                    return AppendInfo(first.first_offset, first.last_offset, first.timestamp, self.log_start, True)
                self.producer_state.ensure_in_order(header)
            else:
                self.producer_state.ensure_epoch(header)
        if config.compression_type != "producer":
            batch, header = self._recompressed(batch, header)
        append_time = -1
        if config.message_timestamp_type == "LogAppendTime":
            append_time = self._last_append_time = max(self.place.clock.now_ms(), self._last_append_time)
            _kernel.set_append_time(batch, append_time)
            header = header._replace(max_timestamp=append_time)
        base_offset = self.end_offset
        set_offset_and_epoch(batch, base_offset, self.leader_epoch)
        self._write(batch, header, base_offset)
        self._note_producer(batch, header, base_offset)
        self._moved_end(base_offset, acks_all)
        return AppendInfo(base_offset, self.end_offset - 1, append_time, self.log_start, False)

    def append_records(
        self,
        records: Sequence[tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]],
        *,
        acks_all: bool,
    ) -> AppendInfo:
        """Build one batch of (timestamp, key, value, headers) and append it."""
        return self.append(_kernel.build_batch(records), acks_all=acks_all, origin=Origin.COORDINATOR)

    def _checked(self, batch: bytearray | memoryview, origin: Origin) -> BatchHeader:
        config = self.config
        try:
            if config.compact:
                limit = max(_DECOMPRESSED_LIMIT, config.max_message_bytes * 64)
                header = BatchHeader._make(_kernel.check_batch(batch, keys=True, max_bytes=limit))
            else:
                header = BatchHeader._make(_kernel.check_batch(batch))
        except _kernel.BadBatch as bad:
            error = CorruptMessage if bad.kind in _CORRUPT_KINDS else InvalidRecord
            raise error(f"partition {self.name} refused a batch: {bad}.") from None
        if origin is Origin.COORDINATOR:
            return header
        if header.size > config.max_message_bytes:
            raise RecordTooLarge(
                f"a batch of {header.size} bytes is over the limit of topic {self.topic!r}, "
                f"{config.max_message_bytes} bytes.",
                hint="Raise max.message.bytes of the topic, or send less in a batch.",
            )
        if header.is_control:
            raise InvalidRecord(f"partition {self.name}: clients may not write control batches.")
        if header.base_offset != 0:
            raise InvalidRecord(f"partition {self.name}: a batch must start at offset 0, not {header.base_offset}.")
        if header.producer_id >= 0 and header.base_sequence < 0:
            raise InvalidRecord(f"partition {self.name}: a producer's batch must have a sequence number.")
        if config.message_timestamp_type == "CreateTime" and header.max_timestamp >= 0:
            self._ensure_timestamp(header)
        return header

    def _ensure_timestamp(self, header: BatchHeader) -> None:
        config, now = self.config, self.place.clock.now_ms()
        if header.max_timestamp > now + config.message_timestamp_after_max_ms:
            raise InvalidTimestamp(
                f"partition {self.name}: timestamp {header.max_timestamp} is too far in the future.",
                hint="Check the producer's clock, or raise message.timestamp.after.max.ms.",
            )
        oldest = min(header.base_timestamp, header.max_timestamp)
        if oldest < now - config.message_timestamp_before_max_ms:
            raise InvalidTimestamp(
                f"partition {self.name}: timestamp {oldest} is too old.",
                hint="Raise message.timestamp.before.max.ms to take old records.",
            )

    def _recompressed(
        self, batch: bytearray | memoryview, header: BatchHeader
    ) -> tuple[bytearray | memoryview, BatchHeader]:
        config = self.config
        codec = _CODECS[config.compression_type]
        if header.attributes & CODEC_MASK == codec or header.is_control:
            return batch, header
        level = {
            1: config.compression_gzip_level,
            3: config.compression_lz4_level,
            4: config.compression_zstd_level,
        }.get(codec)
        try:
            fresh = _kernel.recompress(batch, codec, level)
        except _kernel.BadBatch as bad:
            raise InvalidRecord(f"partition {self.name} refused a batch: {bad}.") from None
        attributes = header.attributes & ~CODEC_MASK | codec
        return fresh, header._replace(size=len(fresh), attributes=attributes)

    def _write(self, batch: bytearray | memoryview, header: BatchHeader, base_offset: int) -> None:
        active = self.active
        try:
            if self.should_roll(header.size, base_offset + header.last_offset_delta, header.max_timestamp):
                self.roll()
                active = self.active
            active.append(batch, header, base_offset, self.config.index_interval_bytes)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                self.fail(f"a write failed: {error.strerror or error}")
                raise self._failure() from error
            raise storage_error(error, f"partition {self.name}") from None
        self.written_bytes += header.size
        if active not in self._dirty:
            self._dirty.append(active)

    def _note_producer(self, batch: bytearray | memoryview, header: BatchHeader, base_offset: int) -> None:
        if header.producer_id == NO_PRODUCER_ID:
            return
        if header.is_control:
            aborted = note_control(self.producer_state, batch, header, base_offset)
            if aborted is not None:
                self.active.index.aborted.append(aborted)
                self.active.aborted_count += 1
        else:
            self.producer_state.apply(header, base_offset)

    def _moved_end(self, base_offset: int, acks_all: bool) -> None:
        self.end_offset = self.active.end_offset
        self._appends_since_sync += self.end_offset - base_offset
        if self._appends_since_sync >= self.config.flush_messages:
            acks_all = True
        if acks_all:
            self._durable_offset_wanted = self.end_offset
            if self._appends_since_sync >= self.config.flush_messages and self.sync_wanted is not None:
                self.sync_wanted(self)
        elif self.high_watermark >= base_offset:
            self._raise_high_watermark(self.end_offset)

    # Rolling ---------------------------------------------------------------------------------------------------

    def should_roll(self, size: int, last_offset: int, timestamp: int) -> bool:
        """Whether a batch of this size, last offset and timestamp needs a new segment."""
        active, config = self.active, self.config
        if not active.fits(size, last_offset, config.segment_bytes, config.segment_index_bytes):
            return True
        if config.ring is not None and config.ring.is_segment_full(active.size, last_offset - active.base_offset):
            return True
        return active.size > 0 and self._is_roll_due(timestamp)

    def _is_roll_due(self, timestamp: int) -> bool:
        active = self.active
        first = active.first_header_timestamp()
        waited = timestamp - first if first >= 0 and timestamp >= 0 else self.place.clock.now_ms() - active.created_ms
        return waited > self.config.segment_ms - self._roll_jitter_ms()

    def _roll_jitter_ms(self) -> int:
        jitter = self.config.segment_jitter_ms
        return hash((self.topic_id, self.index, self.active.base_offset)) % jitter if jitter else 0

    def maybe_roll_by_time(self, *, retention: bool) -> None:
        """Roll a segment that is old enough for retention or compaction to want it, although nothing is appended."""
        active, now = self.active, self.place.clock.now_ms()
        if active.size == 0 or self.failed:
            return
        config, first = self.config, active.first_header_timestamp()
        compaction_due = config.compact and first >= 0 and now - first > config.max_compaction_lag_ms
        expired = (
            retention
            and config.delete
            and config.retention_ms >= 0
            and 0 <= active.max_timestamp < now - config.retention_ms
        )
        if compaction_due or expired:
            self.roll()

    def roll(self) -> None:
        """Seal the active segment and start a new one; an empty one stays active."""
        place, old = self.place, self.active
        if old.size == 0:
            return
        fresh = Segment.create(place.files, place.open_files, place.folder, self.end_offset, place.clock.now_ms())
        old.seal()
        self.add_segment(fresh)
        self._folder_dirty = True

    def replace_segments(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Put ``new`` where the ``old`` ones were."""
        super().replace_segments(old, new)
        self._dirty = [s for s in self._dirty if s not in old]

    # Durability ------------------------------------------------------------------------------------------------

    def start_sync(self) -> SyncJob | None:
        """What must be synced so that everything written up to now is on disk; None if all of it is."""
        if self.synced_offset >= self.end_offset and not self._dirty:
            return None
        self._appends_since_sync = 0
        dirty = [(s, s.file, s.size) for s in self._dirty]
        folder, self._folder_dirty = (self.place.folder if self._folder_dirty else None), False
        return SyncJob(self.place.files, dirty, folder, self.end_offset)

    def finish_sync(self, job: SyncJob) -> None:
        """A sync job has run."""
        for segment, _, size in job.dirty:
            segment.synced_size = max(segment.synced_size, size)
        self._dirty = [s for s in self._dirty if s.synced_size < s.size]
        self.synced_offset = max(self.synced_offset, job.end_offset)
        if self.synced_offset >= self._durable_offset_wanted:
            self._raise_high_watermark(self.end_offset)
        else:
            self._raise_high_watermark(self.synced_offset)

    def fail(self, reason: str) -> None:
        """Take no more writes: after a failed sync nobody knows what is on disk."""
        if self.failed is None:
            self.failed = reason
            _logger.error("partition %s takes no more writes until the node is restarted: %s", self.name, reason)
            self.notify()

    def _failure(self) -> HeadraceError:
        return PartitionFailed(
            f"partition {self.name} takes no more writes: {self.failed}.",
            hint="Check the disk, then restart the node; what was acknowledged is kept.",
        )

    def gone(self) -> HeadraceError:
        """The error for those who wait on a deleted topic."""
        return UnknownTopic(f"topic {self.topic!r} was deleted.")

    def failure(self) -> HeadraceError | None:
        """The error for writers, once the partition has failed."""
        return None if self.failed is None else self._failure()

    def _raise_high_watermark(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.maybe_drop_oldest()
            if self.listeners:
                self.notify()

    def notify(self) -> None:
        """Tell the listeners that something moved."""
        for listener in tuple(self.listeners):
            listener(self)

    # Reading ---------------------------------------------------------------------------------------------------

    def ensure_in_range(self, offset: int) -> None:
        """Raise OffsetOutOfRange unless a read may start here."""
        if not self.log_start <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"partition {self.name} has offsets {self.log_start} to {self.end_offset}, not {offset}."
            )

    def read_limit(self, committed: bool) -> int:
        """The offset before which records are visible."""
        return self.last_stable_offset if committed else self.high_watermark

    def read(self, offset: int, max_bytes: int, *, committed: bool = False, min_one: bool = True) -> ReadResult:
        """Whole batches from the one that holds ``offset``, at most ``max_bytes`` (but one, with ``min_one``)."""
        return reading.read(self, offset, max_bytes, committed=committed, min_one=min_one)

    def available_bytes(self, offset: int, committed: bool, limit: int) -> int:
        """About how many bytes a read from ``offset`` could return, not looking further than ``limit``."""
        return reading.available_bytes(self, offset, committed, limit)

    def offset_for_timestamp(self, timestamp_ms: int, committed: bool = False) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record with at least this timestamp."""
        return reading.offset_for_timestamp(self, timestamp_ms, committed)

    def max_timestamp(self) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record with the largest timestamp."""
        return reading.max_timestamp(self)

    def batch_time(self, offset: int) -> int | None:
        """The time of the batch that holds ``offset``; None if it has none."""
        return reading.batch_time(self, offset)

    def replay(self) -> Iterator[_kernel.Record]:
        """Every record from the start to the end, as Python objects: for state topics."""
        return reading.replay(self)

    def replay_batches(self, start: int) -> Iterator[tuple[BatchHeader, list[_kernel.Record]]]:
        """Every batch from offset ``start`` to the end, transaction markers too, with its records."""
        return reading.replay_batches(self, start)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which an offset was written."""
        at = bisect.bisect_right(self.epochs, offset, key=lambda e: e[1]) - 1
        return self.epochs[at][0] if at >= 0 else -1

    def epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        """(largest epoch not above the given one, offset where it ended); (-1, -1) if unknown."""
        if leader_epoch < 0 or leader_epoch > self.epochs[-1][0]:
            return -1, -1
        if leader_epoch == self.epochs[-1][0]:
            return leader_epoch, self.end_offset
        at = bisect.bisect_right(self.epochs, leader_epoch, key=lambda e: e[0])
        floor = self.epochs[at - 1][0] if at else leader_epoch
        return floor, max(self.epochs[at][1], self.log_start)

    # Trimming and checkpoints ----------------------------------------------------------------------------------

    def delete_records(self, before: int) -> int:
        """Make ``before`` (-1: the high watermark) the first readable offset, for good; the new log start."""
        target = self.high_watermark if before == -1 else before
        if target > self.high_watermark or target < 0:
            raise OffsetOutOfRange(
                f"partition {self.name} cannot delete up to {before}, it ends at {self.high_watermark}."
            )
        if target > self.log_start:
            self.move_log_start(target)
        return self.log_start

    def move_log_start(self, offset: int) -> None:
        """Raise the log start; durable when it returns."""
        before, self.log_start = self.log_start, offset
        self._removed += offset - before
        try:
            self.write_checkpoint()
        except OSError as error:
            self.log_start = before
            self._removed -= offset - before
            raise storage_error(error, f"partition {self.name}") from error
        self.notify()

    def maybe_drop_oldest(self) -> None:
        """If this is a ring that is too full, forget the oldest records: readers no longer see them when it returns."""
        ring = self.config.ring
        if ring is None:
            return
        start = ring.start(self.segments, self.high_watermark)
        if start > self.log_start:
            self.log_start = start
            if self.segments[0].end_offset <= start and self.removal_wanted is not None:
                self.removal_wanted(self)

    def checkpoint(self) -> Checkpoint:
        """What the checkpoint file should say now."""
        log_start = self.log_start
        return Checkpoint(log_start, self.cleaned_to, list(self.epochs), log_start - self._removed)

    def write_checkpoint(self) -> None:
        """Write the checkpoint file as of now; on disk when it returns. May be called on any thread."""
        with self._checkpoint_lock:
            checkpoint = self.checkpoint()
            if checkpoint != self._written_checkpoint:
                write_checkpoint(self.place.files, self.place.folder / "checkpoint", checkpoint)
                self._written_checkpoint = checkpoint

    def close(self) -> None:
        """Close the files, without syncing."""
        self.closed = True
        for segment in self.segments:
            segment.close()


def note_control(
    producers: ProducerState,
    batch: bytearray | memoryview | bytes,
    header: BatchHeader,
    base_offset: int,
) -> AbortedTransaction | None:
    """Apply a control batch; the transaction that it aborted, if it did."""
    _, _, key, value, _ = _kernel.records(batch)[0]
    kind = int.from_bytes((key or b"")[2:4], "big")
    if kind > 1:
        return None
    coordinator_epoch = int.from_bytes((value or b"")[2:6], "big", signed=True)
    return producers.end_transaction(header, base_offset, commit=kind == 1, coordinator_epoch=coordinator_epoch)
