"""What a partition needs now and then: checkpoints, retention, compaction, the removal of old files."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from headrace.log.archive import archive_segment
from headrace.log.compaction import plan_compaction
from headrace.log.files import Files
from headrace.log.job import Job
from headrace.log.partition import PartitionLog
from headrace.log.producer_state import write_snapshot
from headrace.log.retention import expired_segments
from headrace.log.segment import Segment

__all__ = ["CheckpointJob", "RetentionJob", "Trash", "partition_jobs"]

_logger = logging.getLogger(__name__)

CHECKPOINT_INTERVAL_MS = 60_000
PRODUCER_EXPIRATION_MS = 86_400_000


class CheckpointJob(Job):
    """Sync a partition and write its indexes, producers and checkpoint, so that the next open has less to scan."""

    def __init__(self, partition: PartitionLog) -> None:
        super().__init__(partition)
        self._sync = partition.start_sync()
        self._sync_error: OSError | None = None
        self._end_offset = partition.end_offset
        self._producers = partition.producer_state.encode(partition.end_offset)
        self._indexes = [
            (s, s.encode_index(), s.size, s.end_offset) for s in partition.segments if s.indexed_size != s.size
        ]

    def run(self) -> None:
        """Write and sync."""
        place = self.partition.place
        if self._sync is not None:
            try:
                self._sync.run()
            except OSError as error:
                self._sync_error = error
                return
        for segment, encoded, size, _ in self._indexes:
            segment.write_index(encoded, size)
        write_snapshot(place.files, place.folder / "producers", self._producers)
        self.partition.write_checkpoint()

    def finish(self) -> None:
        """Note what is on disk now."""
        partition = self.partition
        if self._sync_error is not None:
            partition.fail(f"a sync failed: {self._sync_error.strerror or self._sync_error}")
            return
        if self._sync is not None:
            partition.finish_sync(self._sync)
        partition.checkpointed_offset = self._end_offset
        partition.checkpointed_ms = partition.place.clock.now_ms()
        for segment in partition.segments:
            segment.rest()


class Trash:
    """Files that are to be removed after a while, for readers of other processes that still have their names."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._waiting: list[tuple[int, Path]] = []

    def throw(self, path: Path, when_ms: int) -> None:
        """Rename a file out of the way now, and remove it later."""
        aside = path.with_name(path.name + ".deleted")
        try:
            self._files.rename(path, aside)
        except FileNotFoundError:
            return
        self._waiting.append((when_ms, aside))

    def empty(self, now_ms: int) -> None:
        """Remove what has waited long enough."""
        due = [path for when, path in self._waiting if when <= now_ms]
        self._waiting = [(when, path) for when, path in self._waiting if when > now_ms]
        for path in due:
            self._files.remove(path)


class RetentionJob(Job):
    """Archive expired segments where the topic says so, then delete them.

    The log start is on disk before a file goes: else a gap that a power loss leaves would look like a lost segment.
    """

    def __init__(self, partition: PartitionLog, expired: list[Segment], trash: Trash) -> None:
        super().__init__(partition)
        self._expired = expired
        self._trash = trash
        self._archive = partition.config.archive_path

    def run(self) -> None:
        """Copy to the archive."""
        if self._archive:
            for segment in self._expired:
                archive_segment(self.partition, segment, Path(self._archive))
        self.partition.write_checkpoint()

    def finish(self) -> None:
        """Move the log start, then delete."""
        partition = self.partition
        following = partition.segments[len(self._expired)]
        if following.base_offset > partition.log_start:
            partition.move_log_start(following.base_offset)
        partition.replace_segments(self._expired, [])
        delay_ms = partition.config.file_delete_delay_ms if partition.config.ring is None else 0
        when = partition.place.clock.now_ms() + delay_ms
        for segment in self._expired:
            segment.close()
            self._trash.throw(segment.index_path, when)
            self._trash.throw(segment.path, when)
        if delay_ms == 0:
            self._trash.empty(when)


def partition_jobs(partition: PartitionLog, trash: Trash, *, retention: bool) -> Iterator[Job]:
    """What is due for this partition, with or without retention (a ring always needs it); finish each job before
    asking for the next."""
    now = partition.place.clock.now_ms()
    retention = retention or partition.config.ring is not None
    partition.producer_state.expire(now - PRODUCER_EXPIRATION_MS)
    partition.maybe_roll_by_time(retention=retention)
    if _is_checkpoint_due(partition, now):
        yield CheckpointJob(partition)
    expired = expired_segments(partition, now) if retention else []
    if expired:
        yield RetentionJob(partition, expired, trash)
    if partition.config.compact:
        compaction = plan_compaction(partition, now)
        if compaction is not None:
            yield compaction


def _is_checkpoint_due(partition: PartitionLog, now_ms: int) -> bool:
    if partition.failed or partition.checkpointed_offset == partition.end_offset:
        return False
    rolled = any(s.indexed_size != s.size for s in partition.segments[:-1])
    unsynced_ms = now_ms - partition.checkpointed_ms
    return rolled or not 0 <= unsynced_ms < min(CHECKPOINT_INTERVAL_MS, partition.config.flush_ms)
