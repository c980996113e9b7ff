"""All of a data folder as it is at one moment, beside a node that goes on: what a backup copies.

A cut is taken on the owner's thread, where nothing else happens meanwhile: of every partition the segments with their
sizes, and what its memory says of it. It needs no disk and little time. So a cut is what a process that is killed at
that moment leaves behind, and a node that starts on it does what it does after a kill.

``write_snapshot`` then makes a folder of it, in a thread: segments become hard links, so that compaction and retention
may go on, and all that is small is written from memory. Segments only grow: their first ``size`` bytes are the cut's.
While it links, nobody may remove, replace or index files; deleting a topic is borne. The folder, like a data folder::

    DATA/~snapshots/ID/
      cut                      JSON: when, which node, and of every partition its offsets and the sizes of its segments
      node, producer-ids, ...  small files as they were
      topics/NAME/topic
      topics/NAME/0/           links to segments (longer than the cut, if appended to since), indexes, small files
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.errors import StorageError
from headrace.log.checked_file import read_checked, write_checked
from headrace.log.files import DiskFiles
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore, Topic

__all__ = ["SNAPSHOTS", "Cut", "take_cut", "write_snapshot"]

SNAPSHOTS = "~snapshots"
"""Where snapshots lie in a data folder; tools pass over names that begin so."""

_SETTINGS = ("dynamic-settings", "group-settings", "client-quotas")


@dataclass(frozen=True, slots=True)
class _SegmentCut:
    name: str
    size: int
    index: bytes | None
    """None: the file of the index has all of it."""


@dataclass(frozen=True, slots=True)
class _PartitionCut:
    number: int
    log_start: int
    end_offset: int
    segments: list[_SegmentCut]
    checkpoint: bytes
    producers: bytes


@dataclass(frozen=True, slots=True)
class _TopicCut:
    name: str
    id: str
    payload: bytes
    partitions: list[_PartitionCut]


@dataclass(frozen=True, slots=True)
class Cut:
    """A data folder at one moment, in memory."""

    data: Path
    taken_ms: int
    moment_ns: int
    """The same on the clock that does not jump: it tells what other processes of this machine did before."""
    cluster_id: str
    leader_epoch: int
    small: dict[str, bytes]
    topics: list[_TopicCut]

    def described(self) -> dict[str, Any]:
        """What the file ``cut`` says."""
        partitions = [
            {
                "topic": topic.name,
                "id": topic.id,
                "partition": part.number,
                "log_start": part.log_start,
                "end_offset": part.end_offset,
                "segments": {segment.name: segment.size for segment in part.segments},
            }
            for topic in self.topics
            for part in topic.partitions
        ]
        who = {
            "taken_ms": self.taken_ms,
            "moment_ns": self.moment_ns,
            "cluster_id": self.cluster_id,
            "leader_epoch": self.leader_epoch,
        }
        return {**who, "partitions": partitions}


def take_cut(store: LogStore) -> Cut:
    """What there is now. To be called on the thread that owns the store."""
    small = store.own_files()
    for name in _SETTINGS:
        payload = read_checked(DiskFiles(), store.path / name)
        if payload is not None:
            small[name] = payload
    return Cut(
        store.path,
        store.clock.now_ms(),
        int(store.clock.monotonic() * 1e9),
        store.cluster_id,
        store.leader_epoch,
        small,
        [_topic_cut(store, topic) for topic in store.topics.values()],
    )


def _topic_cut(store: LogStore, topic: Topic) -> _TopicCut:
    parts = [_partition_cut(partition) for partition in topic.partitions]
    return _TopicCut(topic.name, str(topic.id), store.topic_file(topic, len(parts)), parts)


def _partition_cut(partition: PartitionLog) -> _PartitionCut:
    segments = [
        _SegmentCut(
            segment.path.stem,
            segment.size,
            None if segment.indexed_size == segment.size else segment.encode_index(),
        )
        for segment in partition.segments
    ]
    return _PartitionCut(
        partition.index,
        partition.log_start,
        partition.end_offset,
        segments,
        json.dumps(asdict(partition.checkpoint())).encode(),
        partition.producer_state.encode(partition.end_offset),
    )


def write_snapshot(cut: Cut, folder: Path) -> None:
    """Make the folder; may be called on any thread, while nobody tends the store's files."""
    files = DiskFiles()
    for name, payload in cut.small.items():
        files.make_folder(folder)
        write_checked(files, folder / name, payload, durable=False)
    for topic in cut.topics:
        own = folder / "topics" / topic.name
        for part in topic.partitions:
            _write_small(files, own / str(part.number), part)
        write_checked(files, own / "topic", topic.payload, durable=False)
        _link_topic(cut.data, topic, own)
    (folder / "cut").write_text(json.dumps(cut.described()))


def _write_small(files: DiskFiles, folder: Path, part: _PartitionCut) -> None:
    files.make_folder(folder)
    write_checked(files, folder / "checkpoint", part.checkpoint, durable=False)
    write_checked(files, folder / "producers", part.producers, durable=False)
    for segment in part.segments:
        if segment.index is not None:
            (folder / f"{segment.name}.index").write_bytes(segment.index)


def _link_topic(data: Path, topic: _TopicCut, target: Path) -> None:
    """Link its segments, wherever they are: it may be deleted at any moment, and another may get its name."""
    for source in (data / "topics" / topic.name, data / "topics" / f"~deleted-{topic.id}"):
        if not _holds(source, topic.id):
            continue
        try:
            for path, link in _links(topic, source, target):
                link.unlink(missing_ok=True)
                os.link(path, link)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(
                f"the file system of {data} cannot link files ({error.strerror}), so it cannot be saved.",
                hint="Stop the node and copy the whole folder, or keep it on ext4, XFS, Btrfs or ZFS.",
            ) from error
        if _holds(source, topic.id):
            return
    raise StorageError(f"topic {topic.name!r} was deleted while it was saved.", hint="Try it again.")


def _holds(folder: Path, topic_id: str) -> bool:
    payload = read_checked(DiskFiles(), folder / "topic")
    return payload is not None and json.loads(payload)["id"] == topic_id


def _links(topic: _TopicCut, source: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    for part in topic.partitions:
        number = str(part.number)
        for segment in part.segments:
            yield source / number / f"{segment.name}.log", target / number / f"{segment.name}.log"
            if segment.index is None:
                yield source / number / f"{segment.name}.index", target / number / f"{segment.name}.index"
