"""Reading a partition: by offset, by time, and all of it.

Bytes are read in runs of whole batches; the kernel finds the run's ends and checks every checksum on the way, so that
damaged bytes are answered with an error and never served. A reader that goes on where it stopped needs no index: the
position where each recent read ended is remembered as a hint.
"""

from __future__ import annotations

import bisect
import logging
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace import _kernel
from headrace.errors import CorruptRange
from headrace.log.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader
from headrace.log.segment import CHUNK_BYTES, Segment

if TYPE_CHECKING:
    from headrace.log.partition import PartitionLog

__all__ = [
    "ReadResult",
    "SegmentRow",
    "available_bytes",
    "batch_time",
    "batches",
    "max_timestamp",
    "offset_for_timestamp",
    "read",
    "read_run",
    "replay",
    "replay_batches",
]

_logger = logging.getLogger(__name__)

_HINTS = 64
_PREFIX = 12
_SLACK = 8 << 10
_EMPTY = memoryview(b"")
_TIMES = struct.Struct(">qi4xx4xhiqq18x").unpack


class SegmentRow:
    """Segments in the order of their offsets, as reads see them."""

    def __init__(self, name: str, segments: list[Segment]) -> None:
        self.name = name
        self.segments = segments
        self.bases = [s.base_offset for s in segments]
        self.read_hints: dict[int, tuple[Segment, int]] = {}
        self.damage: dict[tuple[int, int], str] = {}

    def segment_at(self, offset: int) -> int:
        """Which segment an offset belongs to."""
        return max(bisect.bisect_right(self.bases, offset) - 1, 0)

    def add_segment(self, segment: Segment) -> None:
        """Put a segment at the end."""
        self.segments.append(segment)
        self.bases.append(segment.base_offset)

    def replace_segments(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Put ``new`` where the ``old`` ones were."""
        at = self.segments.index(old[0])
        self.segments[at : at + len(old)] = new
        self.bases = [s.base_offset for s in self.segments]
        self.read_hints.clear()


class ReadResult(NamedTuple):
    """Batches as they are on disk, and where the log stood."""

    data: memoryview
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    aborted: list[tuple[int, int]]

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return len(self.data)


def read(partition: PartitionLog, offset: int, max_bytes: int, *, committed: bool, min_one: bool) -> ReadResult:
    """Whole batches from the one that holds ``offset``."""
    partition.ensure_in_range(offset)
    limit = partition.read_limit(committed)
    data, next_offset = _EMPTY, offset
    if offset < limit and (max_bytes > 0 or min_one):
        data, next_offset = read_run(partition, offset, limit, max_bytes, min_one)
    aborted = _aborted(partition, offset, next_offset) if committed and data else []
    stable = partition.last_stable_offset
    return ReadResult(data, next_offset, partition.high_watermark, stable, partition.log_start, aborted)


def read_run(row: SegmentRow, offset: int, limit: int, max_bytes: int, min_one: bool) -> tuple[memoryview, int]:
    """Whole batches of one segment from the one that holds ``offset``, below ``limit``; and the offset after them."""
    hint = row.read_hints.get(offset)
    if hint is not None:
        segment, position = hint
        at, slack = row.segment_at(segment.base_offset), 0
    else:
        at, slack = row.segment_at(offset), _SLACK
        segment = row.segments[at]
        position = segment.index.position_of_offset(offset)
    while True:
        run = _read_segment(row, segment, position, _Want(offset, limit, max_bytes, min_one), slack)
        if run is not None:
            if run.data:
                _remember(row, run.next_offset, segment, run.end)
            return run.data, run.next_offset
        at += 1
        if at == len(row.segments):
            return _EMPTY, offset
        segment, position, slack = row.segments[at], 0, 0


class _Want(NamedTuple):
    offset: int
    limit: int
    max_bytes: int
    min_one: bool


class _Run(NamedTuple):
    data: memoryview
    next_offset: int
    end: int


def _read_segment(row: SegmentRow, segment: Segment, position: int, want: _Want, slack: int) -> _Run | None:
    """The run of batches in one segment, perhaps empty; None if the segment ends before ``want.offset``."""
    size = max(want.max_bytes, _SLACK) + slack
    while position < segment.size:
        data = memoryview(segment.read(position, size))
        start, end, next_offset, bad = _kernel.slice_batches(data, want.offset, want.limit)
        if end > start:
            return _trimmed(data, start, end, next_offset, position, want)
        if bad is not None:
            raise _damaged(row, segment, position + start, str(bad))
        if len(data) < min(size, segment.size - position):
            raise _damaged(row, segment, position + start, "the file is shorter than its index says")
        position += start
        rest = data[start:]
        if len(rest) >= _PREFIX:
            if int.from_bytes(rest[:8], "big") >= want.limit:
                return _Run(_EMPTY, want.offset, position)
            batch_size = int.from_bytes(rest[8:12], "big") + _PREFIX
            if batch_size > want.max_bytes and not want.min_one:
                return _Run(_EMPTY, want.offset, position)
            if position + batch_size > segment.size:
                raise _damaged(row, segment, position, "the last batch is cut short")
            size = max(size, batch_size)
        elif rest and position + len(rest) >= segment.size:
            raise _damaged(row, segment, position, "the last batch is cut short")
    return None


def _trimmed(data: memoryview, start: int, end: int, next_offset: int, position: int, want: _Want) -> _Run:
    if end - start > want.max_bytes:
        kept = data[start : start + want.max_bytes]
        _, kept_end, next_offset, _ = _kernel.slice_batches(kept, want.offset, want.limit)
        if kept_end == 0:
            if not want.min_one:
                return _Run(_EMPTY, want.offset, position)
            kept_end = int.from_bytes(data[start + 8 : start + 12], "big") + _PREFIX
            _, _, next_offset, _ = _kernel.slice_batches(data[start : start + kept_end], want.offset, want.limit)
        end = start + kept_end
    return _Run(data[start:end], next_offset, position + end)


def _remember(row: SegmentRow, next_offset: int, segment: Segment, position: int) -> None:
    hints = row.read_hints
    hints[next_offset] = (segment, position)
    if len(hints) > _HINTS:
        del hints[next(iter(hints))]


def _damaged(row: SegmentRow, segment: Segment, position: int, reason: str) -> CorruptRange:
    sentence = f"{row.name} is damaged at byte {position} of {segment.path.name}: {reason}"
    if (segment.base_offset, position) not in row.damage:
        row.damage[(segment.base_offset, position)] = sentence
        _logger.error("%s. Nothing was cut away; `headrace log verify` lists all damage", sentence)
    return CorruptRange(f"{sentence}.", hint="Restore the segment from a backup, or read on after the damaged batch.")


def _aborted(partition: PartitionLog, first: int, end: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for segment in partition.segments[partition.segment_at(first) :]:
        if segment.aborted_count:
            for aborted in segment.index.aborted:
                if aborted.last_offset >= first and aborted.first_offset < end:
                    found.append((aborted.producer_id, aborted.first_offset))
                if aborted.last_stable_offset >= end:
                    return found
    return found


def available_bytes(partition: PartitionLog, offset: int, committed: bool, limit: int) -> int:
    """About how many bytes there are from ``offset`` on, not looking further than ``limit``."""
    if offset >= partition.read_limit(committed):
        return 0
    hint = partition.read_hints.get(offset)
    at = partition.segment_at(hint[0].base_offset if hint else offset)
    segment = partition.segments[at]
    total = segment.size - (hint[1] if hint else segment.index.position_of_offset(offset))
    while total < limit and at + 1 < len(partition.segments):
        at += 1
        total += partition.segments[at].size
    return max(total, 1)


def batches(segment: Segment, position: int = 0, *, crc: bool = False) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Header (its position counted from the file's start) and bytes of every batch from ``position`` on."""
    size = CHUNK_BYTES
    while position < segment.size:
        data = memoryview(segment.read(position, size))
        headers, used, bad = _kernel.scan(data, crc=crc)
        for header in map(BatchHeader._make, headers):
            batch = data[header.position : header.position + header.size]
            yield header._replace(position=position + header.position), batch
        position += used
        if headers:
            size = CHUNK_BYTES
        elif bad is not None and bad.kind == "truncated" and size < segment.size - position:
            size = min(segment.size - position, size * 4)
        else:
            return


def offset_for_timestamp(partition: PartitionLog, timestamp: int, committed: bool) -> tuple[int, int, int] | None:
    """(offset, timestamp, leader epoch) of the first record with at least this timestamp."""
    limit = partition.read_limit(committed)
    for segment in partition.segments:
        if segment.max_timestamp < timestamp or segment.end_offset <= partition.log_start:
            continue
        for header, batch in batches(segment, segment.index.position_of_timestamp(timestamp)):
            if header.base_offset >= limit:
                return None
            if header.max_timestamp < timestamp:
                continue
            found = _kernel.find_timestamp(batch, timestamp, partition.log_start)
            if found is not None:
                return (*found, header.leader_epoch) if found[0] < limit else None
    return None


def max_timestamp(partition: PartitionLog) -> tuple[int, int, int] | None:
    """(offset, timestamp, leader epoch) of the first record with the largest timestamp."""
    newest = max(partition.segments, key=lambda s: s.max_timestamp)
    if newest.max_timestamp < 0:
        return None
    for header, batch in batches(newest, newest.index.position_of_timestamp(newest.max_timestamp)):
        if header.max_timestamp == newest.max_timestamp:
            found = _kernel.max_timestamp(batch)
            return None if found is None else (*found, header.leader_epoch)
    return None


def batch_time(partition: PartitionLog, offset: int) -> int | None:
    """The first timestamp of the batch that holds ``offset`` (or its append time); only headers are read."""
    at = partition.segment_at(offset)
    segment = partition.segments[at]
    position = segment.index.position_of_offset(offset)
    while True:
        head = segment.read(position, HEADER_SIZE)
        if len(head) == HEADER_SIZE:
            base_offset, length, attributes, last_delta, base_time, max_time = _TIMES(head)
            if base_offset + last_delta >= offset:
                time = max_time if attributes & LOG_APPEND_TIME else base_time
                return time if time >= 0 else None
            if length <= 0:
                return None
            position += length + 12
        elif at + 1 < len(partition.segments):
            at += 1
            segment, position = partition.segments[at], 0
        else:
            return None


def replay(partition: PartitionLog) -> Iterator[_kernel.Record]:
    """Every data record from the log's start to its end."""
    for header, records in replay_batches(partition, partition.log_start):
        if not header.is_control:
            yield from records


def replay_batches(partition: PartitionLog, start: int) -> Iterator[tuple[BatchHeader, list[_kernel.Record]]]:
    """Every batch from offset ``start`` to the log's end, markers too, with its records."""
    start = max(start, partition.log_start)
    for segment in partition.segments[partition.segment_at(start) :]:
        position = segment.index.position_of_offset(start) if segment.base_offset < start else 0
        for header, batch in batches(segment, position, crc=True):
            if header.last_offset >= start:
                yield header, [record for record in _kernel.records(batch) if record[0] >= start]
