"""What runs beside Spark's driver: where a query starts, how far its next batch goes, and what it has come to.

The planner is asked for the next position when the batch before is done. It reads the reports of that batch, commits
its end as the offsets of the consumer group named after the query, and plans the next one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headrace.clock import Clock, SystemClock
from headrace.errors import InvalidInput, OffsetOutOfRange, ServerAway
from headrace.feed import Feed
from headrace.feed.cluster import Cluster
from headrace.feed.topics import COMPACTED, ensure_topic
from headrace.pipelines.source.aside import AsideWriter, dead_topic, late_topic
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.planning import Position, Range, ceiling_ms, fit_to_limit
from headrace.pipelines.source.reports import TIMES, Reports, query_key, report_key, total_value
from headrace.pipelines.time import moment_ms, skew_ms

__all__ = ["Planner", "start_offsets"]

_logger = logging.getLogger(__name__)
_PARTITIONS_EVERY_S = 5.0


class Planner:
    """One run of a query's reading of one topic."""

    def __init__(
        self, options: SourceOptions, cluster: Cluster, feed: Callable[[], Feed], clock: Clock | None = None
    ) -> None:
        self.options = options
        self._cluster, self._feed, self._clock = cluster, feed, clock or SystemClock()
        self._reports = Reports(options.query, options.topic)
        self._reports_read = 0
        self._writer: AsideWriter | None = None
        self._group: Consumer | None = None
        self._told: Mapping[int, int] | None = None
        self._partitions: list[int] = []
        self._partitions_until = 0.0
        self._target: dict[int, int] | None = None
        self._read_to_ms: int | None = None

    def first(self) -> Position:
        """Where a query begins that has no position yet."""
        if self.options.position is not None:
            known = Position.from_dict(json.loads(self.options.position))
            return replace(known, start=known.offsets)
        offsets = start_offsets(self._cluster, self.options)
        return Position(self.options.topic, offsets, offsets)

    def stop_at_present_end(self) -> None:
        """Read no further than what is there now."""
        self._target = self._ends()

    def next(self, done: Position, limit: int | None) -> Position:
        """The batch after one that is done: the same position if there is nothing to read yet."""
        try:
            return self._next(done, limit)
        except ServerAway as away:
            if self._target is not None:
                raise
            _logger.warning("%s waits: %s", self.options.query, away)
            return done

    def ensure_there(self, found: list[Range]) -> None:
        """Raise if records of these ranges were deleted before they could be read."""
        starts = self._cluster.starts(self.options.topic, [one.partition for one in found])
        for one in found:
            if one.start and starts[one.partition] > one.start:
                raise OffsetOutOfRange(
                    f"records {one.start} to {starts[one.partition] - 1} of {self.options.topic}[{one.partition}] were "
                    f"deleted before query {self.options.query!r} read them.",
                    hint="raise the topic's retention; start the query over with --rebuild, or from a time with --from",
                )

    def close(self) -> None:
        """Commit where the query is, and let go."""
        if self._group is not None:
            with contextlib.suppress(KafkaException):
                if self._told is not None:
                    self._group.commit(offsets=self._committed(self._told), asynchronous=False)
                self._group.close()
        if self._writer is not None:
            self._writer.close()

    def _next(self, done: Position, limit: int | None) -> Position:
        self._read_reports()
        largest, counts = self._reports.folded(done)
        if done.offsets != self._told:
            self._tell(done, total_value(done.offsets, largest, counts))
        ends = self._ends()
        if self._target is not None:
            ends = {index: min(end, self._target.get(index, 0)) for index, end in ends.items()}
        start = {index: done.offsets.get(index, 0) for index in ends}
        for index, end in ends.items():
            if end < start[index] and self._target is None:
                raise OffsetOutOfRange(
                    f"{self.options.topic}[{index}] ends at {end}, but query {self.options.query!r} has read up to "
                    f"{start[index]}.",
                    detail="the topic was made anew, or its last records were lost",
                    hint="start the query over with --rebuild",
                )
        now = self._clock.now_ms()
        ends = {index: max(end, start[index]) for index, end in ends.items()}
        ends = self._admitted(start, ends, limit, now)
        if ends == start:
            return done
        return Position(done.topic, start, ends, largest, now, counts)

    def _admitted(
        self, start: Mapping[int, int], ends: dict[int, int], limit: int | None, now_ms: int
    ) -> dict[int, int]:
        """Ends that hold the fast partitions back, and fit the limit."""
        options = self.options
        if ends == start:
            return ends
        over = limit is not None and sum(ends.values()) - sum(start.values()) > limit
        held = options.event_time is not None and self._target is None and len(ends) > 1
        if not over and not held:
            return ends
        newest = self._cluster.newest_ms(options.topic, list(ends))
        if held:
            ceiling = ceiling_ms(newest, now_ms, options.idle_after_ms, skew_ms(options.lateness_ms))
            if ceiling is not None:
                first_after = self._cluster.offset_at(options.topic, ceiling + 1, list(ends))
                ends = {index: max(start[index], min(end, first_after[index])) for index, end in ends.items()}
        if limit is not None and over:
            ends = self._fitted(start, ends, limit, max(newest.values()) + 1)
        return ends

    def _fitted(self, start: Mapping[int, int], ends: Mapping[int, int], limit: int, until_ms: int) -> dict[int, int]:
        """Ends that fit the limit. The time that they reach is where the next search begins."""
        if self._read_to_ms is None:
            self._read_to_ms = self._oldest_ms(start, ends)
        asked: dict[int, dict[int, int]] = {}

        def offset_at(time_ms: int) -> dict[int, int]:
            asked[time_ms] = self._cluster.offset_at(self.options.topic, time_ms, list(ends))
            return asked[time_ms]

        fitted = fit_to_limit(start, ends, limit, (self._read_to_ms, until_ms), offset_at)
        reached = [time_ms for time_ms, found in asked.items() if all(found[one] <= fitted[one] for one in fitted)]
        self._read_to_ms = max(reached, default=None)
        return fitted

    def _oldest_ms(self, start: Mapping[int, int], ends: Mapping[int, int]) -> int:
        """The smallest timestamp of the records that are next in each partition."""
        found = []
        for index, end in ends.items():
            batch = next(iter(self._feed().read(self.options.topic, index, start[index], end)), None)
            if batch is not None:
                found.append(batch.column("timestamp")[0].value)
        return min(found, default=0)

    def _ends(self) -> dict[int, int]:
        if time.monotonic() >= self._partitions_until:
            self._partitions = self._cluster.partitions(self.options.topic)
            self._partitions_until = time.monotonic() + _PARTITIONS_EVERY_S
        return self._cluster.ends(self.options.topic, self._partitions)

    def _read_reports(self) -> None:
        if self._writer is None:
            for topic in (TIMES, dead_topic(self.options.topic), late_topic(self.options.topic)):
                ensure_topic(self._cluster, topic, config=COMPACTED)
            self._writer = AsideWriter(self._cluster)
        end = self._cluster.ends(TIMES, [0])[0]
        for batch in self._feed().read(TIMES, 0, self._reports_read, end):
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            self._reports.add(zip(keys, values, strict=True))
        self._reports_read = max(end, self._reports_read)

    def _tell(self, done: Position, total: bytes) -> None:
        """Write the query's sum, forget the reports that no one needs any more, commit the offsets of its group."""
        options, writer = self.options, self._writer
        assert writer is not None
        writer.put(TIMES, query_key(options.query, options.topic), total)
        for read in self._reports.covered(done.start):
            writer.put(TIMES, report_key(options.query, options.topic, read), None)
        if self._group is None:
            self._group = Consumer(self._cluster.config(group_id=options.query, enable_auto_commit=False))
        with contextlib.suppress(KafkaException):  # the next one says the same and more
            self._group.commit(offsets=self._committed(done.offsets), asynchronous=True)
        self._told = dict(done.offsets)

    def _committed(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self.options.topic, index, offset) for index, offset in offsets.items()]


def start_offsets(cluster: Cluster, options: SourceOptions) -> dict[int, int]:
    """Where reading begins, as the options say."""
    partitions = cluster.partitions(options.topic)
    if options.start == "earliest":
        return cluster.starts(options.topic, partitions)
    if options.start == "latest":
        return cluster.ends(options.topic, partitions)
    try:
        at_ms = moment_ms(options.start)
    except ValueError:
        raise InvalidInput(
            f"{options.start!r} is no place to start from.",
            hint="say earliest, latest, or a time like 2026-01-31T12:00Z",
        ) from None
    return cluster.offset_at(options.topic, at_ms)
