"""What runs in Spark's workers: a task reads ranges of partitions and gives typed Arrow batches.

A worker process is used for many tasks; it keeps its feed and its producer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from headrace.feed import Feed, open_feed
from headrace.feed.cluster import Cluster
from headrace.feed.presence import this_machine
from headrace.pipelines.source.aside import AsideWriter
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.planning import Counts, Range
from headrace.pipelines.source.reports import Report
from headrace.pipelines.source.shape import Shape
from headrace.pipelines.source.sorting import Bounds, sort_records
from headrace.pipelines.worker import settle

__all__ = ["BatchTask", "StreamTask", "aside_writer", "feed_of", "read_batch_task", "read_stream_task"]

_Place = tuple[str, str | None, tuple[tuple[str, str], ...]]
_feeds: dict[_Place, Feed] = {}
_writers: dict[tuple[str, tuple[tuple[str, str], ...]], AsideWriter] = {}


class StreamTask(InputPartition):
    """Ranges to read, and what event times are compared with."""

    def __init__(self, ranges: list[Range], bounds: Bounds) -> None:
        super().__init__(None)
        self.ranges = ranges
        self.bounds = bounds


class BatchTask(InputPartition):
    """A range to read, and the offsets in it to leave out."""

    def __init__(self, read: Range, without: list[int]) -> None:
        super().__init__(None)
        self.read = read
        self.without = without


def feed_of(options: SourceOptions) -> Feed:
    """This process's feed: of files on the log's own machine, over the protocol on others."""
    data = options.data if options.machine in (None, this_machine()) else None
    place = (options.bootstrap, data, options.client)
    if place not in _feeds:
        _feeds[place] = open_feed(options.bootstrap, Path(data) if data else None, dict(options.client))
    return _feeds[place]


def aside_writer(bootstrap: str, client: tuple[tuple[str, str], ...]) -> AsideWriter:
    """This process's writer of dead and late rows."""
    if (bootstrap, client) not in _writers:
        _writers[bootstrap, client] = AsideWriter(Cluster(bootstrap, dict(client)))
    return _writers[bootstrap, client]


def read_stream_task(task: StreamTask, options: SourceOptions, shape: Shape) -> Iterator[pa.RecordBatch]:
    """The rows for Spark; dead and late ones, and the reports, are on disk when it ends."""
    feed, writer, reports = feed_of(options), aside_writer(options.bootstrap, options.client), []
    for read in task.ranges:
        counts, largest = Counts(), None
        for records in feed.read(options.topic, read.partition, read.start, read.end, whole=True):
            found = sort_records(records, read.partition, options, shape, task.bounds)
            writer.dead(options, read.partition, records, found.dead)
            writer.late(options, read.partition, records, found.late, task.bounds)
            counts = counts.plus(Counts(records.num_rows, len(found.late), len(found.dead)))
            if found.largest_us is not None:
                largest = found.largest_us if largest is None else max(largest, found.largest_us)
            if found.rows.num_rows:
                yield found.rows
        reports.append((read, Report(counts, largest)))
    for read, report in reports:
        writer.report(options, read, report)
    writer.flush()
    settle("source")


def read_batch_task(task: BatchTask, options: SourceOptions, shape: Shape) -> Iterator[pa.RecordBatch]:
    """The good rows of a range; nothing is written."""
    without = pa.array(task.without, pa.int64())
    read = task.read
    for records in feed_of(options).read(options.topic, read.partition, read.start, read.end, whole=True):
        if len(without):
            records = records.filter(pc.invert(pc.is_in(records.column("offset"), value_set=without)))
        rows = sort_records(records, read.partition, options, shape, Bounds(None, None)).rows
        if rows.num_rows:
            yield rows
