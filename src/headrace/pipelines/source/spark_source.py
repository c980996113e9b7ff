"""The log as a data source of Spark, named ``headrace``: a stream of micro-batches, or a bounded relation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.feed.cluster import Cluster
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.planner import Planner
from headrace.pipelines.source.planning import Position, Range, tasks
from headrace.pipelines.source.shape import Shape, output_type, shape_of
from headrace.pipelines.source.sorting import Bounds
from headrace.pipelines.source.tasks import BatchTask, StreamTask, feed_of, read_batch_task, read_stream_task
from headrace.pipelines.time import late_bound

__all__ = ["HeadraceSource"]


class HeadraceSource(DataSource):
    """Options: ``source`` (SourceOptions), ``declared`` (the schema), ``read`` (for a relation: what), each as JSON."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "headrace"

    def schema(self) -> StructType:
        """What Spark gets."""
        return output_type(self._source, self._declared)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Micro-batches."""
        return _StreamReader(self._source, shape_of(self._source, self._declared, schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A bounded relation."""
        read = [
            BatchTask(Range(partition, start, end), without)
            for partition, start, end, without in json.loads(self.options["read"])
        ]
        return _BatchReader(self._source, shape_of(self._source, self._declared, schema), read)

    @property
    def _source(self) -> SourceOptions:
        return SourceOptions.from_options(self.options)

    @property
    def _declared(self) -> StructType:
        return StructType.fromJson(json.loads(self.options["declared"]))


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, reads in the workers."""

    def __init__(self, options: SourceOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            options = self._options
            cluster = Cluster(options.bootstrap, dict(options.client))
            self._planner = Planner(options, cluster, lambda: feed_of(options))
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        return self.planner.first().to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_records_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self.planner.stop_at_present_end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        done = Position.from_dict(start)
        following = self.planner.next(done, rows)
        return start if following is done else following.to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        position = Position.from_dict(end)
        self.planner.ensure_there(position.ranges)
        options = self._options
        bounds = Bounds(
            late_bound(position.largest_us, options.delay_ms), (position.now_ms + options.max_future_ms) * 1000
        )
        return [StreamTask(group, bounds) for group in tasks(position.ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StreamTask)
        return read_stream_task(partition, self._options, self._shape)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()


class _BatchReader(DataSourceReader):
    """Reads in the workers; writes nothing."""

    def __init__(self, options: SourceOptions, shape: Shape, read: list[BatchTask]) -> None:
        self._options = options
        self._shape = shape
        self._tasks = read

    def partitions(self) -> list[InputPartition]:
        return list(self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, BatchTask):  # Spark's stand-in when there is nothing to read
            return iter(())
        return read_batch_task(partition, self._options, self._shape)
