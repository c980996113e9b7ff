"""Group commit: many producers wait for one round of syncs.

One round is under way at a time; whoever asks meanwhile is served by the next one, together. A round of a few files is
synced by one thread, a larger one by several (a file's sync is cheap next to waking a thread, many files' are not).
All methods and callbacks belong to the owner's thread (the event loop); only the syncs themselves run elsewhere.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headrace.errors import HeadraceError
from headrace.exposition import Histogram
from headrace.log.partition import PartitionLog, SyncJob

__all__ = ["GroupCommit"]

_logger = logging.getLogger(__name__)

_FILES_PER_THREAD = 4

Done = Callable[[HeadraceError | None], None]
Work = list[tuple[PartitionLog, SyncJob]]


class GroupCommit:
    """Tells who waits when their records are on disk."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], threads: int = 8) -> None:
        self._call_soon = call_soon
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="sync")
        self._waiting: dict[PartitionLog, list[tuple[int, Done]]] = {}
        self._wanted: dict[PartitionLog, None] = {}
        self._patient: dict[PartitionLog, None] = {}
        self._planned = False
        self._running = 0
        self._began = 0.0
        self.syncs = Histogram()
        """How long the sync of a file took."""
        self.rounds = Histogram()
        """How long a round took: all its files, and telling who waited."""

    def when_durable(self, partition: PartitionLog, next_offset: int, done: Done, *, can_wait: bool = False) -> None:
        """Call ``done`` once everything below ``next_offset`` is on disk, or with the error if that failed.

        What can wait is part of the next round that somebody else needs; who asks sees to it that there is one.
        """
        if partition.failed is not None:
            done(partition.failure())
        elif partition.synced_offset >= next_offset:
            done(None)
        else:
            self._waiting.setdefault(partition, []).append((next_offset, done))
            if can_wait:
                self._patient[partition] = None
            else:
                self.request(partition)

    def request(self, partition: PartitionLog) -> None:
        """Sync what is written, though nobody waits."""
        self._wanted[partition] = None
        if not self._planned and not self._running:
            self._planned = True
            self._call_soon(self._begin)

    def close(self) -> None:
        """Finish the syncs under way; whoever still waits gets no answer."""
        self._pool.shutdown(wait=True)

    def _begin(self) -> None:
        """Start a round with all that is wanted by now."""
        self._planned = False
        if self._running:
            return
        wanted, self._wanted, self._patient = self._wanted | self._patient, {}, {}
        work: Work = []
        for partition in wanted:
            job = None if partition.deleted or partition.failed else partition.start_sync()
            if job is None:
                self._serve(partition)
            else:
                work.append((partition, job))
        self._began = time.perf_counter()
        tasks = min(self._threads, -(-len(work) // _FILES_PER_THREAD))
        self._running = tasks
        for task in range(tasks):
            self._pool.submit(self._run, work[task::tasks])

    def _run(self, work: Work) -> None:
        outcomes = [(partition, job, *_outcome(job)) for partition, job in work]
        try:
            self._call_soon(lambda: self._finished(outcomes))
        except RuntimeError:
            _logger.debug("the loop ended before a round of syncs did")

    def _finished(self, outcomes: list[tuple[PartitionLog, SyncJob, OSError | None, float]]) -> None:
        for partition, job, error, seconds in outcomes:
            self.syncs.observe(seconds)
            if error is None:
                partition.finish_sync(job)
            elif not partition.deleted and not partition.closed:
                partition.fail(f"a sync failed: {error.strerror or error}")
            self._serve(partition)
        self._running -= 1
        if self._running == 0:
            self.rounds.observe(time.perf_counter() - self._began)
            if self._wanted:
                self._begin()

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


def _outcome(job: SyncJob) -> tuple[OSError | None, float]:
    """What went wrong, and how long it took."""
    began, error = time.perf_counter(), None
    try:
        job.run()
    except OSError as failed:
        error = failed
    except Exception as failed:  # a closed file of a deleted topic, or a bug: nobody may wait for ever
        error = OSError(0, str(failed))
    return error, time.perf_counter() - began
