"""A segment: one file of record batches, and its index.

``{base offset, 20 digits}.log`` holds the batches byte for byte, ``.index`` where they lie. Batches are only added to
the last segment of a partition, the active one; all others are sealed. ``size`` is the length of the whole batches,
which may be less than the file's after a refused write: the next append goes to ``size``.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from pathlib import Path

from typing_extensions import Buffer

from headrace import _kernel
from headrace.log.batch import BatchHeader
from headrace.log.files import File, Files
from headrace.log.segment_index import Cover, SegmentIndex, read_index, write_index

__all__ = ["CHUNK_BYTES", "OpenFiles", "Segment", "segment_name"]

CHUNK_BYTES = 4 << 20
"""How much is read at once by scans."""

_MAX_RELATIVE_OFFSET = 0x7FFFFFFF


def segment_name(base_offset: int) -> str:
    """The file name without its ending: sorts as the numbers do."""
    return f"{base_offset:020d}"


class OpenFiles:
    """Keeps the files of sealed segments open, the least recently used of more than ``limit`` closed."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._open: OrderedDict[Segment, None] = OrderedDict()

    def used(self, segment: Segment) -> None:
        """Note that a sealed segment's file is open and was used."""
        self._open[segment] = None
        self._open.move_to_end(segment)
        if len(self._open) > self._limit:
            oldest = self._open.popitem(last=False)[0]
            if oldest.synced_size == oldest.size:
                oldest.close()

    def forget(self, segment: Segment) -> None:
        """The segment's file was closed."""
        self._open.pop(segment, None)


class Segment:
    """One file of batches with its index."""

    __slots__ = (
        "_bytes_since_entry",
        "_file",
        "_files",
        "_index",
        "_open_files",
        "aborted_count",
        "active",
        "base_offset",
        "created_ms",
        "end_offset",
        "first_timestamp",
        "folder",
        "indexed_size",
        "max_timestamp",
        "size",
        "synced_size",
    )

    def __init__(self, files: Files, open_files: OpenFiles, folder: Path, base_offset: int, created_ms: int) -> None:
        self._files = files
        self._open_files = open_files
        self._file: File | None = None
        self._index: SegmentIndex | None = None
        self._bytes_since_entry = 0
        self.folder = folder
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.active = False
        self.size = 0
        self.synced_size = 0
        self.indexed_size = -1
        self.end_offset = base_offset
        self.max_timestamp = -1
        self.first_timestamp = -1
        self.aborted_count = 0

    @classmethod
    def create(cls, files: Files, open_files: OpenFiles, folder: Path, base_offset: int, now_ms: int) -> Segment:
        """A new, empty, active segment; its name is not on disk until the folder is synced."""
        segment = cls(files, open_files, folder, base_offset, now_ms)
        segment._file = files.open(segment.path, create=True)
        segment._index = SegmentIndex(base_offset)
        segment.active = True
        return segment

    @property
    def path(self) -> Path:
        """The file of batches."""
        return self.folder / f"{segment_name(self.base_offset)}.log"

    @property
    def index_path(self) -> Path:
        """The file of the index."""
        return self.folder / f"{segment_name(self.base_offset)}.index"

    @property
    def file(self) -> File:
        """The open file of batches."""
        if self._file is None:
            self._file = self._files.open(self.path)
        if not self.active:
            self._open_files.used(self)
        return self._file

    @property
    def index(self) -> SegmentIndex:
        """The index, read from its file or made again from the batches when that is missing or damaged."""
        if self._index is None:
            found = read_index(self._files, self.index_path, self.base_offset)
            if found is not None and found[1].covered_bytes == self.size:
                self._index = found[0]
            else:
                self._index = self._rebuilt_index()
        return self._index

    def take_cover(self, index: SegmentIndex | None, cover: Cover) -> None:
        """Start from what the index file says; the index itself may be read later."""
        self._index = index
        self.size = self.synced_size = self.indexed_size = cover.covered_bytes
        self.end_offset = cover.end_offset
        self.max_timestamp = cover.max_timestamp
        self.aborted_count = cover.aborted_count

    def start_index(self) -> None:
        """Start with an empty index, for a segment that is to be scanned from its beginning."""
        self._index = SegmentIndex(self.base_offset)

    def fits(self, size: int, offset: int, max_bytes: int, max_index_bytes: int) -> bool:
        """Whether a batch of this size and last offset may go into this segment."""
        if self.size == 0:
            return True
        return (
            self.size + size <= max_bytes
            and offset - self.base_offset <= _MAX_RELATIVE_OFFSET
            and self.index.size_bytes // 2 < max_index_bytes
        )

    def append(self, batch: Buffer, header: BatchHeader, base_offset: int, index_interval: int) -> None:
        """Write a batch at the end; a failed write leaves nothing behind."""
        try:
            self.file.write(self.size, batch)
        except OSError:
            with contextlib.suppress(OSError):
                self.file.truncate(self.size)
            raise
        self.note(header, base_offset, index_interval)

    def note(self, header: BatchHeader, base_offset: int, index_interval: int) -> None:
        """Take in a batch whose bytes are at ``size`` already."""
        if self._bytes_since_entry > index_interval:
            self.index.add(base_offset, self.size, self.max_timestamp)
            self._bytes_since_entry = 0
        if self.size == 0:
            self.first_timestamp = header.max_timestamp
        self._bytes_since_entry += header.size
        self.size += header.size
        self.end_offset = base_offset + header.last_offset_delta + 1
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp

    def read(self, position: int, size: int) -> bytes:
        """Bytes of the whole batches only."""
        return self.file.read(position, min(size, self.size - position))

    def first_header_timestamp(self) -> int:
        """The largest timestamp of the first batch, -1 if there is none."""
        if self.first_timestamp < 0 and self.size > 0:
            headers, _, _ = _kernel.scan(self.read(0, CHUNK_BYTES), crc=False)
            if headers:
                self.first_timestamp = BatchHeader._make(headers[0]).max_timestamp
        return self.first_timestamp

    def encode_index(self) -> bytes:
        """The index file's bytes for all that is in the segment now."""
        return self.index.encode(self.size, self.end_offset, self.max_timestamp)

    def write_index(self, encoded: bytes, covered_bytes: int) -> None:
        """Write the index file; the covered bytes must be synced."""
        write_index(self._files, self.index_path, encoded)
        self.indexed_size = covered_bytes

    def rest(self) -> None:
        """Give back memory that can be read again."""
        if not self.active and self.indexed_size == self.size:
            self._index = None

    def seal(self) -> None:
        """No more batches."""
        self.active = False
        if self._file is not None:
            self._open_files.used(self)

    def close(self) -> None:
        """Close the file."""
        self._open_files.forget(self)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rebuilt_index(self) -> SegmentIndex:
        index, position, timestamp, last = SegmentIndex(self.base_offset), 0, -1, 0
        while position < self.size:
            headers, used, _ = _kernel.scan(self.read(position, CHUNK_BYTES), crc=False)
            if not headers:
                big = int.from_bytes(self.read(position + 8, 4), "big", signed=True) + 12
                headers, used, _ = _kernel.scan(self.read(position, max(big, 0)), crc=False)
                if not headers:
                    break
            for header in map(BatchHeader._make, headers):
                at = position + header.position
                if at - last > 4096:
                    index.add(header.base_offset, at, timestamp)
                    last = at
                timestamp = max(timestamp, header.max_timestamp)
            position += used
        if self.aborted_count:
            found = read_index(self._files, self.index_path, self.base_offset)
            if found is not None:
                index.aborted = found[0].aborted
        return index
