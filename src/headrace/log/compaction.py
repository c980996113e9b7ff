"""Key compaction: of every key, only the latest record stays.

Two passes over sealed segments, in a thread: the first notes the latest offset of every key in the part that is not
clean yet, the second rewrites the segments without what is replaced (the rules are in the kernel's ``compact``). Small
neighbours become one. Never touched: the active segment, what is not on disk yet, and everything from the first offset
of an open transaction on. Two kinds of batch stay although they are empty: a producer's newest, because it carries the
producer's sequence, and the last of the rewritten part, so that a reader can get to its end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace import _kernel
from headrace.log.batch import BatchHeader
from headrace.log.files import File, Files
from headrace.log.job import Job
from headrace.log.segment import CHUNK_BYTES, Segment, segment_name
from headrace.log.segment_index import AbortedTransaction, SegmentIndex, write_index
from headrace.log.swap import CLEANED, swap_in

if TYPE_CHECKING:
    from headrace.log.partition import PartitionLog

__all__ = ["MAX_KEYS", "CompactionJob", "plan_compaction"]

_logger = logging.getLogger(__name__)

MAX_KEYS = 4_000_000
"""Keys that one round can tell apart (about 24 bytes each); a round with more stops early and the next goes on."""

_MAX_RELATIVE_OFFSET = 0x7FFFFFFF


class _DamagedSegment(Exception):
    pass


class _Cancelled(Exception):
    pass


def plan_compaction(partition: PartitionLog, now_ms: int) -> CompactionJob | None:
    """A job if enough of the partition is dirty, or dirty for too long."""
    if partition.failed or partition.damage:
        return None
    config = partition.config
    cleanable = _cleanable(partition, now_ms)
    dirty = [s for s in cleanable if s.end_offset > partition.cleaned_to and s.size > 0]
    if not dirty:
        return None
    ratio = sum(s.size for s in dirty) / max(sum(s.size for s in cleanable), 1)
    waited = now_ms - dirty[0].first_header_timestamp()
    if ratio < config.min_cleanable_dirty_ratio and waited <= config.max_compaction_lag_ms:
        return None
    return CompactionJob(partition, cleanable, now_ms)


def _cleanable(partition: PartitionLog, now_ms: int) -> list[Segment]:
    limit = min(partition.last_stable_offset, partition.synced_offset)
    lag = partition.config.min_compaction_lag_ms
    found: list[Segment] = []
    for segment in partition.segments[:-1]:
        too_young = lag > 0 and segment.max_timestamp > now_ms - lag
        if segment.end_offset > limit or too_young:
            break
        found.append(segment)
    return found


def _chunks(files: Files, segment: Segment) -> Iterator[tuple[memoryview, int]]:
    """Runs of whole batches that pass their checksums, and the offset after each run; through a file of its own."""
    file = files.open(segment.path)
    try:
        yield from _file_chunks(file, segment)
    finally:
        file.close()


def _file_chunks(file: File, segment: Segment) -> Iterator[tuple[memoryview, int]]:
    position, size = 0, CHUNK_BYTES
    while position < segment.size:
        data = memoryview(file.read(position, min(size, segment.size - position)))
        headers, used, bad = _kernel.scan(data)
        if headers:
            yield data[:used], BatchHeader._make(headers[-1]).next_offset
            position, size = position + used, CHUNK_BYTES
        elif bad is not None and bad.kind == "truncated" and len(data) < segment.size - position:
            size *= 4
        else:
            raise _DamagedSegment(f"{segment.path} is damaged at byte {position}: {bad}")


class _Rewritten:
    """A segment being written as ``.cleaned``."""

    def __init__(self, partition: PartitionLog, replaced: list[Segment], aborted: list[AbortedTransaction]) -> None:
        place, base = partition.place, replaced[0].base_offset
        self._files = place.files
        self._interval = partition.config.index_interval_bytes
        self._folder = place.folder
        self._name = segment_name(base)
        self._file = place.files.open(place.folder / f"{self._name}.log{CLEANED}", create=True)
        self.replaced = replaced
        self.index = SegmentIndex(base, aborted=tuple(aborted))
        self.size = 0
        self.max_timestamp = -1
        self._last_entry = 0

    def write(self, data: bytearray) -> None:
        """Add batches."""
        self._file.write(self.size, data)
        for header in map(BatchHeader._make, _kernel.scan(data, crc=False)[0]):
            at = self.size + header.position
            if at - self._last_entry > self._interval:
                self.index.add(header.base_offset, at, self.max_timestamp)
                self._last_entry = at
            self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        self.size += len(data)

    def finish(self) -> None:
        """Sync the batches, then write the index."""
        self._file.sync()
        self._file.close()
        encoded = self.index.encode(self.size, self.replaced[-1].end_offset, self.max_timestamp)
        write_index(self._files, self._folder / f"{self._name}.index{CLEANED}", encoded)


class CompactionJob(Job):
    """One round of compaction of one partition."""

    def __init__(self, partition: PartitionLog, segments: list[Segment], now_ms: int) -> None:
        super().__init__(partition)
        self.records_kept = self.records_dropped = 0
        self._segments = segments
        self._now_ms = now_ms
        self._cleaned_from = partition.cleaned_to
        self._cleaned_to = partition.cleaned_to
        self._keep_empty = partition.producer_state.last_offsets() | {segments[-1].end_offset - 1}
        self._aborted_of = {s: list(s.index.aborted) if s.aborted_count else [] for s in segments}
        marked = [s for s in partition.segments if s.aborted_count]  # a marker may lie behind what is compacted
        self._aborted = [(a[0], a[1], a[2]) for s in marked for a in s.index.aborted]
        self._files = partition.place.files
        self._rewritten: list[_Rewritten] = []

    def run(self) -> None:
        """Build the map and rewrite."""
        try:
            latest = self._latest_offsets()
            for group in self._groups():
                self._rewrite(group, latest)
        except _Cancelled:
            self._rewritten.clear()
            self._cleaned_to = self._cleaned_from
        except (_DamagedSegment, _kernel.BadBatch) as damage:
            _logger.error("%s is not compacted: %s", self.partition.name, damage)
            self._rewritten.clear()
            self.partition.damage[(-1, -1)] = str(damage)

    def finish(self) -> None:
        """Put the rewritten segments in place."""
        partition, place = self.partition, self.partition.place
        for rewritten in self._rewritten:
            for old in rewritten.replaced:
                old.close()
            base = rewritten.replaced[0].base_offset
            swap_in(place.files, place.folder, base)
            fresh = Segment(place.files, place.open_files, place.folder, base, place.clock.now_ms())
            fresh.size = fresh.synced_size = fresh.indexed_size = rewritten.size
            fresh.end_offset = rewritten.replaced[-1].end_offset
            fresh.max_timestamp = rewritten.max_timestamp
            fresh.aborted_count = len(rewritten.index.aborted)
            partition.replace_segments(rewritten.replaced, [fresh])
        if self._cleaned_to > partition.cleaned_to:
            partition.cleaned_to = self._cleaned_to
            partition.write_checkpoint()

    def _chunks(self, segment: Segment) -> Iterator[tuple[memoryview, int]]:
        for chunk in _chunks(self._files, segment):
            if self.cancelled:
                raise _Cancelled
            yield chunk

    def _latest_offsets(self) -> _kernel.LatestOffsets:
        latest = _kernel.LatestOffsets(MAX_KEYS)
        for segment in self._segments:
            if segment.end_offset <= self._cleaned_from:
                continue
            for data, end in self._chunks(segment):
                reached = latest.add(data, end, aborted=self._aborted)
                self._cleaned_to = max(self._cleaned_to, reached)
                if reached < end:
                    return latest
            self._cleaned_to = segment.end_offset
        return latest

    def _groups(self) -> Iterator[list[Segment]]:
        """Neighbours that fit into one segment together."""
        limit = self.partition.config.segment_bytes
        group: list[Segment] = []
        for segment in self._segments:
            if segment.base_offset >= self._cleaned_to:
                break
            size = sum(s.size for s in group) + segment.size
            if group and (size > limit or segment.end_offset - group[0].base_offset > _MAX_RELATIVE_OFFSET):
                yield group
                group = []
            group.append(segment)
        if group:
            yield group

    def _rewrite(self, group: list[Segment], latest: _kernel.LatestOffsets) -> None:
        rewritten = _Rewritten(self.partition, group, [a for s in group for a in self._aborted_of[s]])
        for segment in group:
            for data, _ in self._chunks(segment):
                cleaned, kept, dropped = _kernel.compact(
                    data,
                    latest,
                    now_ms=self._now_ms,
                    delete_retention_ms=self.partition.config.delete_retention_ms,
                    keep_empty=self._keep_empty,
                    aborted=self._aborted,
                )
                rewritten.write(cleaned)
                self.records_kept += kept
                self.records_dropped += dropped
        rewritten.finish()
        self._rewritten.append(rewritten)
