"""Reading segment files, on the log's machine: no broker in between, no copy but the page cache's.

Which offsets there are is asked of the broker; what is below the last stable offset is in the files and decided.
Bytes are read in chunks of whole batches, and each chunk becomes one Arrow batch. Where a chunk has transactional
batches whose markers lie behind it, the headers after it are looked through for them first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace import _kernel
from headrace.errors import CorruptRange, InvalidInput
from headrace.feed.cluster import Cluster, deleted
from headrace.feed.partition_files import PartitionFiles, SegmentFile
from headrace.feed.transactions import Markers, marker_commits
from headrace.log.batch import BatchHeader
from headrace.log.checked_file import read_checked
from headrace.log.files import DiskFiles

if TYPE_CHECKING:
    import pyarrow

__all__ = ["SegmentFeed", "ensure_data_of"]

_LOOK_AHEAD = 1 << 20


def ensure_data_of(data: Path, cluster: Cluster) -> None:
    """Raise unless a folder is the data folder of this cluster."""
    payload = read_checked(DiskFiles(), data / "node")
    ours = json.loads(payload)["cluster_id"] if payload is not None else None
    if ours != (theirs := cluster.id()):
        raise InvalidInput(
            f"{data} is not the data folder of the broker at {cluster.bootstrap}.",
            detail=f"the folder's cluster id is {ours}, the broker's {theirs}",
            hint="Give the folder that `headrace up` was started with, or none.",
        )


class SegmentFeed:
    """A feed that reads files."""

    def __init__(self, cluster: Cluster, data: Path) -> None:
        self.cluster = cluster
        self.data = data
        self.cluster_id = cluster.id
        self.partitions = cluster.partitions
        self.bounds = cluster.bounds
        self.offset_at = cluster.offset_at
        self.topic_id = cluster.topic_id
        self._files: dict[tuple[str, int], PartitionFiles] = {}

    def read(
        self, topic: str, partition: int, start: int, end: int, *, max_bytes: int = 1 << 20, whole: bool = False
    ) -> Iterator[pyarrow.RecordBatch]:
        """The committed data records of a range."""
        import pyarrow

        if start >= end:
            return
        files = self._files.get((topic, partition))
        if files is None:
            files = PartitionFiles(self.data / "topics" / topic / str(partition))
            self._files[topic, partition] = files
        markers, reached = Markers(start), start
        for chunk in _chunks(files, start, end, max_bytes):
            if whole and reached and chunk.file.base_offset > reached:
                self._ensure_there(topic, partition, reached)
            reached = chunk.next_offset
            wanted = _Range(max(start, chunk.reached), end)
            committed = _committed(files, chunk, markers, wanted)
            batch = pyarrow.record_batch(_kernel.records_to_arrow(committed, wanted.start, wanted.end))
            if batch.num_rows:
                yield batch
        if whole and 0 < reached < end:
            self._ensure_there(topic, partition, reached)

    def _ensure_there(self, topic: str, partition: int, offset: int) -> None:
        """Files do not say whether retention or compaction took what was before them; the log's start does."""
        if self.cluster.starts(topic, [partition])[partition] > offset:
            raise deleted(topic, partition)

    def close(self) -> None:
        """Let go of files and the client."""
        self._files.clear()
        self.cluster.close()


class _Range(NamedTuple):
    start: int
    end: int

    def touches(self, batch: BatchHeader) -> bool:
        return batch.base_offset < self.end and batch.last_offset >= self.start


class _Chunk(NamedTuple):
    """A run of whole batches, where it lies, and the offset that the chunk before it reached."""

    data: memoryview
    headers: list[BatchHeader]
    file: SegmentFile
    position: int
    reached: int

    @property
    def end(self) -> int:
        return self.position + len(self.data)

    @property
    def next_offset(self) -> int:
        return self.headers[-1].next_offset


def _chunks(files: PartitionFiles, start: int, end: int, max_bytes: int) -> Iterator[_Chunk]:
    """All batches with offsets in the range, in runs of about ``max_bytes``; some before and after it too."""
    place: tuple[SegmentFile, int] | None = files.at(start)
    reached = start
    while place is not None:
        file, position = place
        for chunk in _file_chunks(file, position, max_bytes, reached):
            if chunk.next_offset > reached:
                yield chunk
                reached = chunk.next_offset
            if reached >= end:
                rest = next((batch.position for batch in chunk.headers if batch.last_offset >= end), len(chunk.data))
                files.remember(file, end, chunk.position + rest)
                return
        place = files.after(file, reached)


def _file_chunks(file: SegmentFile, position: int, max_bytes: int, reached: int) -> Iterator[_Chunk]:
    """The runs of one file from ``position`` to its end; a batch that is being written is behind its end."""
    size = max_bytes
    while data := memoryview(file.read(position, size)):
        headers, used, bad = _kernel.scan(data, crc=False)
        if headers:
            chunk = _Chunk(data[:used], [BatchHeader._make(header) for header in headers], file, position, reached)
            yield chunk
            position, size, reached = chunk.end, max_bytes, max(reached, chunk.next_offset)
        elif bad is not None and bad.kind == "truncated" and len(data) == size:
            size *= 4
        elif bad is not None and bad.kind != "truncated":
            raise CorruptRange(f"{file.path} is damaged at byte {position}: {bad}.")
        else:
            return


def _committed(files: PartitionFiles, chunk: _Chunk, markers: Markers, wanted: _Range) -> memoryview | bytes:
    """The batches of a chunk without those of aborted transactions."""
    transactional = [batch for batch in _note(chunk, markers) if wanted.touches(batch)]
    if not transactional:
        return chunk.data
    if markers.undecided(transactional):
        _look_ahead(files, chunk, markers, transactional)
    aborted = {batch.position for batch in transactional if markers.is_aborted(batch)}
    markers.forget(chunk.next_offset)
    if not aborted:
        return chunk.data
    return b"".join(
        chunk.data[batch.position : batch.position + batch.size]
        for batch in chunk.headers
        if batch.position not in aborted
    )


def _note(chunk: _Chunk, markers: Markers) -> list[BatchHeader]:
    """Take in the markers of a chunk that were not seen yet; returns its transactional data batches."""
    transactional = [batch for batch in chunk.headers if batch.is_transactional]
    for batch in transactional:
        if batch.is_control and batch.base_offset >= markers.seen_to:
            commits = marker_commits(chunk.data[batch.position : batch.position + batch.size])
            if commits is not None:
                markers.add(batch.producer_id, batch.base_offset, commits)
    markers.seen_to = max(markers.seen_to, chunk.next_offset)
    return [batch for batch in transactional if not batch.is_control]


def _look_ahead(files: PartitionFiles, chunk: _Chunk, markers: Markers, wanted: list[BatchHeader]) -> None:
    """Look through what follows until the fate of all is known."""
    ahead = markers.seen_to > chunk.next_offset
    place: tuple[SegmentFile, int] | None = files.at(markers.seen_to) if ahead else (chunk.file, chunk.end)
    while place is not None:
        file, position = place
        for found in _file_chunks(file, position, _LOOK_AHEAD, markers.seen_to):
            _note(found, markers)
            if not markers.undecided(wanted):
                return
        place = files.after(file, markers.seen_to)
    raise CorruptRange(
        f"{chunk.file.path.parent} has a transaction below its last stable offset that no marker ends.",
        hint="`headrace log verify` checks the folder.",
    )
