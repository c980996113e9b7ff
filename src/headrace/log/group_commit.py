"""Group commit: many producers wait for one sync.

A partition has at most one sync under way; whoever asks meanwhile is served by the next one, together. Syncs of
different partitions run in parallel threads. All methods and callbacks belong to the owner's thread (the event loop);
only the syncs themselves run elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headrace.errors import HeadraceError
from headrace.log.partition import PartitionLog, SyncJob

__all__ = ["GroupCommit"]

_logger = logging.getLogger(__name__)

Done = Callable[[HeadraceError | None], None]


class GroupCommit:
    """Tells who waits when their records are on disk."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], threads: int = 4) -> None:
        self._call_soon = call_soon
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="sync")
        self._waiting: dict[PartitionLog, list[tuple[int, Done]]] = {}
        self._running: set[PartitionLog] = set()
        self._again: set[PartitionLog] = set()
        self.syncs = 0

    def when_durable(self, partition: PartitionLog, next_offset: int, done: Done) -> None:
        """Call ``done`` once everything below ``next_offset`` is on disk, or with the error if that failed."""
        if partition.failed is not None:
            done(partition.failure())
        elif partition.synced_offset >= next_offset:
            done(None)
        else:
            self._waiting.setdefault(partition, []).append((next_offset, done))
            self.request(partition)

    def request(self, partition: PartitionLog) -> None:
        """Sync what is written, though nobody waits."""
        if partition in self._running:
            self._again.add(partition)
            return
        job = None if partition.deleted else partition.start_sync()
        if job is None:
            self._serve(partition)
            return
        self._running.add(partition)
        self.syncs += 1
        self._pool.submit(self._run, partition, job)

    def close(self) -> None:
        """Finish the syncs under way; whoever still waits gets no answer."""
        self._pool.shutdown(wait=True)

    def _run(self, partition: PartitionLog, job: SyncJob) -> None:
        error: OSError | None = None
        try:
            job.run()
        except OSError as failed:
            error = failed
        except BaseException as failed:  # a closed file of a deleted topic, or a bug: nobody may wait for ever
            error = OSError(0, str(failed))
        try:
            self._call_soon(lambda: self._finished(partition, job, error))
        except RuntimeError:
            _logger.debug("the loop has ended before a sync of %s", partition.name)

    def _finished(self, partition: PartitionLog, job: SyncJob, error: OSError | None) -> None:
        self._running.discard(partition)
        if error is None:
            partition.finish_sync(job)
        elif not partition.deleted and not partition.closed:
            partition.fail(f"a sync failed: {error.strerror or error}")
        self._serve(partition)
        if partition in self._again:
            self._again.discard(partition)
            self.request(partition)

    def _serve(self, partition: PartitionLog) -> None:
        waiting = self._waiting.pop(partition, None)
        if waiting is None:
            return
        failure = partition.gone() if partition.deleted else partition.failure()
        later = []
        for next_offset, done in waiting:
            if failure is None and next_offset > partition.synced_offset:
                later.append((next_offset, done))
            else:
                done(failure)
        if later:  # those that were added by the callbacks come after them
            self._waiting[partition] = later + self._waiting.get(partition, [])
