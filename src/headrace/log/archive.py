"""Segments that were copied away before retention deleted them: ``ARCHIVE/topic/topic id/partition/BASE.log``.

A copy has the same bytes and the same index as the segment had, so whatever reads a partition's folder reads it too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.errors import OffsetOutOfRange
from headrace.log.files import Files
from headrace.log.reading import SegmentRow, read_run
from headrace.log.segment import CHUNK_BYTES, OpenFiles, Segment
from headrace.log.segment_index import read_cover

if TYPE_CHECKING:
    from headrace.log.partition import PartitionLog

__all__ = ["ArchivedPartition", "archive_folder", "archive_segment"]


def archive_folder(archive: Path, topic: str, topic_id: UUID, partition: int) -> Path:
    """Where a partition's archived segments are."""
    return archive / topic / str(topic_id) / str(partition)


def archive_segment(partition: PartitionLog, segment: Segment, archive: Path) -> None:
    """Copy a sealed segment and its index; on disk when it returns. Doing it again changes nothing."""
    files = partition.place.files
    folder = archive_folder(archive, partition.topic, partition.topic_id, partition.index)
    target = folder / segment.path.name
    if files.exists(target) and files.size(target) == segment.size:
        return
    files.make_folder(folder)
    _copy(files, segment.index_path, folder)
    _copy(files, segment.path, folder)
    files.sync_folder(folder)


def _copy(files: Files, path: Path, folder: Path) -> None:
    fresh = folder / f"{path.name}.new"
    source, copy = files.open(path), files.open(fresh, create=True)
    try:
        position = 0
        while data := source.read(position, CHUNK_BYTES):
            copy.write(position, data)
            position += len(data)
        copy.sync()
    finally:
        source.close()
        copy.close()
    files.rename(fresh, folder / path.name)


class ArchivedPartition(SegmentRow):
    """Reads archived segments back by offset."""

    def __init__(self, files: Files, folder: Path) -> None:
        segments = []
        open_files = OpenFiles(limit=8)
        for name in files.names(folder):
            cover = read_cover(files, folder / f"{name[:20]}.index") if name.endswith(".log") else None
            if cover is not None:
                segment = Segment(files, open_files, folder, int(name[:20]), created_ms=-1)
                segment.take_cover(None, cover)
                segments.append(segment)
        super().__init__(f"archive {folder}", segments)

    @property
    def start_offset(self) -> int:
        """The first archived offset; 0 if nothing is archived."""
        return self.segments[0].base_offset if self.segments else 0

    @property
    def end_offset(self) -> int:
        """The offset after the last archived one."""
        return self.segments[-1].end_offset if self.segments else 0

    def read(self, offset: int, max_bytes: int) -> memoryview:
        """Whole batches from the one that holds ``offset``, at least one; empty at the end."""
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(f"{self.name} has offsets {self.start_offset} to {self.end_offset}, not {offset}.")
        if offset == self.end_offset:
            return memoryview(b"")
        return read_run(self, offset, self.end_offset, max_bytes, True)[0]

    def close(self) -> None:
        """Close the files."""
        for segment in self.segments:
            segment.close()
