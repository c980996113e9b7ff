"""Topics as DataFrames."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from headrace.errors import InvalidInput, UnknownTopic
from headrace.feed import Feed, open_feed
from headrace.feed.cluster import Cluster
from headrace.pipelines.catalyst import each, looked_at, nodes
from headrace.pipelines.source.aside import dead_topic, late_topic
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.planner import start_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["needed_columns", "read_batch", "read_stream", "with_all_columns"]

_BY_TIME = frozenset({b"far-future"})


def read_stream(spark: SparkSession, options: SourceOptions) -> DataFrame:
    """A topic's rows as they come. Dead and late rows are taken out and written to their topics before a batch ends.

    With an event time, the watermark is set: rows of a partition that is up to the lateness out of order are not late,
    also when other partitions are ahead.
    """
    _register(spark)
    reader = spark.readStream.format("headrace")
    for name, value in _options(spark, options).items():
        reader = reader.option(name, value)
    frame = reader.load()
    if options.event_time is not None:
        frame = frame.withWatermark(options.event_time, f"{options.delay_ms} milliseconds")
    return frame


def read_batch(spark: SparkSession, options: SourceOptions, ends: Mapping[int, int] | None = None) -> DataFrame:
    """The rows that the stream gave its query, up to ``ends`` or the present end, as a bounded relation.

    Rows that are no good are left out as the stream does; so are those that the query has found too late or too far in
    the future. Nothing is written.
    """
    if options.start == "latest":
        raise InvalidInput("a relation cannot start at the latest record.", hint="say earliest, or a time")
    _register(spark)
    cluster = Cluster(options.bootstrap, dict(options.client))
    feed = open_feed(options.bootstrap, None, dict(options.client))
    try:
        starts = start_offsets(cluster, options)
        present = cluster.ends(options.topic, list(starts))
        gone = _taken_out(feed, options)
    finally:
        feed.close()
    read = [
        (index, start, min(end, (ends or present).get(index, 0)), sorted(gone.get(index, ())))
        for index, start in starts.items()
        if start < (end := present[index])
    ]
    reader = spark.read.format("headrace")
    for name, value in {**_options(spark, options), "read": json.dumps(read)}.items():
        reader = reader.option(name, value)
    return reader.load()


def needed_columns(spark: SparkSession, build: Callable[[DataFrame], DataFrame], schema: str) -> tuple[str, ...]:
    """The columns that a query needs of its input: those that are left when Spark has optimised it; at least one.

    ``build`` makes the query's result from its input.
    """
    context = spark.sparkContext
    relation: Any = spark.createDataFrame(context.emptyRDD(), schema)
    rows = relation._jdf.logicalPlan().rdd().id()
    result: Any = build(relation)
    plan = result._jdf.queryExecution().optimizedPlan()
    kept = looked_at(plan)
    ours: dict[int, str] = {}
    for node in nodes(plan):
        if node.nodeName() == "LogicalRDD" and node.rdd().id() == rows:  # several times, if it is joined with itself
            ours |= {attribute.exprId().id(): attribute.name() for attribute in each(node.output())}
    needed = {name for identity, name in ours.items() if identity in kept}
    return tuple(name for name in relation.columns if name in needed) or tuple(relation.columns[:1])


def with_all_columns(frame: DataFrame, schema: str) -> DataFrame:
    """A frame of some columns with all that are declared: a query's function may name columns that, in the end, nothing
    looks at. Those that were not decoded are an error where something does look."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    there = {name: F.col(f"`{name}`") for name in frame.columns}
    every = {
        one.name: F.raise_error(F.lit(f"column {one.name!r} was not decoded")).cast(one.dataType).alias(one.name)
        for one in cast(StructType, StructType.fromDDL(schema)).fields
    }
    return frame if there.keys() >= every.keys() else frame.select(*{**every, **there}.values())


def _register(spark: SparkSession) -> None:
    from headrace.pipelines.source.spark_source import HeadraceSource

    spark.dataSource.register(HeadraceSource)


def _options(spark: SparkSession, options: SourceOptions) -> dict[str, str]:
    from pyspark.sql.types import StructType

    declared = StructType.fromDDL(options.schema)
    return {**options.to_options(), "declared": declared.json()}


def _taken_out(feed: Feed, options: SourceOptions) -> dict[int, set[int]]:
    """The offsets of each partition that the query has taken out for their event time."""
    found: dict[int, set[int]] = {}
    prefix = f"{options.query}/{options.topic}/".encode()
    for topic, mine in ((late_topic(options.topic), prefix), (dead_topic(options.topic), b"")):
        try:
            bounds = feed.bounds(topic)
        except UnknownTopic:
            continue
        for index, (start, end) in bounds.items():
            for batch in feed.read(topic, index, start, end):
                for row in batch.select(["key", "headers"]).to_pylist():
                    headers = {header["key"]: header["value"] for header in row["headers"]}
                    by_time = headers.get("headrace.reason") in _BY_TIME
                    if row["key"].startswith(mine) and (mine or by_time) and "headrace.offset" in headers:
                        partition, offset = (int(headers[f"headrace.{name}"]) for name in ("partition", "offset"))
                        found.setdefault(partition, set()).add(offset)
    return found
