"""Checking one segment: its batches and records, its index, and that it goes on where the one before ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

from headrace import _kernel
from headrace.log.batch import BatchHeader
from headrace.log.files import DiskFiles
from headrace.log.findings import PartitionReport
from headrace.log.log_file import DamagedBytes, FoundBatch, read_log
from headrace.log.segment_index import Cover, SegmentIndex, read_index

__all__ = ["SegmentCheck"]


class SegmentCheck:
    """One segment; what it finds goes into the report.

    Offsets may be missing only before ``gaps_until``, where compaction has been. ``end_offset`` is where the next
    segment may start, once the check has run.
    """

    def __init__(self, report: PartitionReport, path: Path, gaps_until: int, *, last: bool) -> None:
        self._report = report
        self._findings = report.findings
        self._path = path
        self._index_path = path.with_suffix(".index")
        self._gaps_until = gaps_until
        self._last = last
        self._size = 0
        self._max_timestamp = -1
        self._entries: deque[tuple[int, int, int]] = deque()
        self._cover: Cover | None = None
        self._damage: DamagedBytes | None = None
        self.base_offset = int(path.stem)
        self.end_offset = self.base_offset

    def run(self, previous_end: int | None, advanced: Callable[[int], object]) -> None:
        """Check it all; ``advanced`` is told of every run of bytes."""
        if previous_end is not None:
            self._check_start(previous_end)
        index, self._cover = self._read_index()
        self._entries.extend(index.entries())
        for found in read_log(self._path, known_positions=[position for _, position, _ in self._entries]):
            if isinstance(found, DamagedBytes):
                self._take_damage(found)
            else:
                self._take_batch(found)
            advanced(self._size)
        self._finish()

    def _check_start(self, previous_end: int) -> None:
        if self.base_offset < previous_end:
            reason = f"it starts before the end of the segment before it, offset {previous_end}"
            self._findings.damage(self._path, reason, 0, self.base_offset)
        elif self.base_offset > max(previous_end, self._gaps_until):
            reason = f"offsets {previous_end} to {self.base_offset - 1} are missing before it"
            self._findings.damage(self._path, reason, 0, previous_end)

    def _read_index(self) -> tuple[SegmentIndex, Cover | None]:
        found = read_index(DiskFiles(), self._index_path, self.base_offset)
        if found is not None:
            return found
        if self._index_path.exists():
            self._findings.note(self._index_path, "the index is damaged; it is made again from the log")
        elif not self._last:
            self._findings.note(self._index_path, "the index is missing; it is made again from the log")
        return SegmentIndex(self.base_offset), None

    def _take_damage(self, found: DamagedBytes) -> None:
        self._report_damage(None)
        self._damage = found
        self._size = found.position + found.size
        while self._entries and self._entries[0][1] < self._size:
            self._entries.popleft()

    def _take_batch(self, found: FoundBatch) -> None:
        header = found.header
        if self._cover is not None and header.position == self._cover.covered_bytes:
            self._check_cover(self._cover)
        while self._entries and self._entries[0][1] <= header.position:
            self._check_entry(*self._entries.popleft(), header)
        if header.base_offset < self.end_offset:
            self._here(f"offset {header.base_offset} comes after offset {self.end_offset - 1}", header)
        elif self._damage is not None:
            self._report_damage(header.base_offset)
        elif header.base_offset > max(self.end_offset, self._gaps_until):
            self._here(f"offsets {self.end_offset} to {header.base_offset - 1} are missing", header)
        try:
            _kernel.walk(found.data)
        except _kernel.BadBatch as bad:
            self._here(f"the checksum of the batch is right but its records are not: {bad}", header)
        self._count(header)

    def _count(self, header: BatchHeader) -> None:
        self._report.batches += 1
        self._report.records += header.record_count
        self._report.bytes += header.size
        self._size = header.position + header.size
        self.end_offset = max(self.end_offset, header.next_offset)
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)

    def _here(self, reason: str, header: BatchHeader) -> None:
        self._findings.damage(self._path, reason, header.position, header.base_offset)

    def _check_entry(self, offset: int, position: int, timestamp: int, header: BatchHeader) -> None:
        reason = None
        if position != header.position:
            reason = f"it points to byte {position}, where no batch starts"
        elif offset != header.base_offset:
            reason = f"it says offset {offset} at byte {position}, where offset {header.base_offset} is"
        elif timestamp < self._max_timestamp:
            reason = f"it says {timestamp} is the latest time before byte {position}, but {self._max_timestamp} is"
        if reason is not None:
            self._findings.damage(self._index_path, reason, position, offset)

    def _check_cover(self, cover: Cover) -> None:
        if cover.end_offset < self.end_offset:
            reason = f"it says the segment ends at offset {cover.end_offset}, but it does at {self.end_offset}"
            self._findings.damage(self._index_path, reason, cover.covered_bytes, cover.end_offset)
        if cover.max_timestamp < self._max_timestamp:
            reason = f"it says {cover.max_timestamp} is the segment's latest time, but {self._max_timestamp} is"
            self._findings.damage(self._index_path, reason, cover.covered_bytes, cover.end_offset)

    def _finish(self) -> None:
        cover = self._cover
        if self._damage is not None:
            self._report_end(self._damage)
        if cover is not None and cover.covered_bytes > self._size:
            reason = f"the last {cover.covered_bytes - self._size} bytes are missing: they were on disk once"
            self._findings.damage(self._path, reason, self._size, self.end_offset)
        else:
            for offset, position, _ in self._entries:
                self._findings.damage(
                    self._index_path, f"it points to byte {position}, after the end", position, offset
                )
        if cover is not None and cover.covered_bytes == self._size:
            self._check_cover(cover)
        if cover is not None:
            self.end_offset = max(self.end_offset, cover.end_offset)

    def _report_damage(self, next_offset: int | None) -> None:
        if self._damage is None:
            return
        found, self._damage = self._damage, None
        lost = "" if next_offset is None else f"; offsets {self.end_offset} to {next_offset - 1} cannot be read"
        reason = f"{found.size} bytes are no good batch: {found.reason}{lost}"
        self._findings.damage(self._path, reason, found.position, self.end_offset)

    def _report_end(self, found: DamagedBytes) -> None:
        """Bad bytes at the end of the log, which the index does not vouch for, were never acknowledged."""
        if self._last and found.position >= (self._cover.covered_bytes if self._cover else 0):
            reason = f"the last {found.size} bytes are no whole batch: torn, or being written"
            self._findings.note(self._path, reason, found.position, self.end_offset)
        else:
            self._report_damage(None)
