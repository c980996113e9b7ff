"""Operators over DataFrames: ``keyed`` puts one into a query's plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.pipelines.building import current, next_operator
from headrace.pipelines.state.operator import Operator

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["Keyed", "has_watermark", "keyed", "polars_schema"]

WATERMARK = "spark.watermarkDelayMs"
"""Spark's mark on a column that a watermark is kept of."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """An input of an operator, and the columns that decide which rows come together."""

    frame: DataFrame
    by: Sequence[str]


def keyed(
    inputs: Mapping[str, Keyed], operator: Operator, output: StructType, *, event_time: str | None = None
) -> DataFrame:
    """The operator's output as a DataFrame.

    Rows whose ``by`` columns are equal, in number, order, type and value, come to the same step. Columns with names
    that begin with ``_bucket`` are ours. ``event_time`` names the output's column that is its event time: a window over
    it closes as the watermark passes, so the operator must put out rows in time (see ``operator``).
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import to_arrow_schema

    from headrace.pipelines.state.packing import BUCKET, PACKED, packer, unpacker
    from headrace.pipelines.state.processor import Address, KeyedProcessor

    query, schemas, packed = current(), {}, []
    for tag, one in inputs.items():
        schemas[tag] = polars_schema(one.frame.schema)
        bucket = F.pmod(F.xxhash64(*one.by), F.lit(query.buckets)).cast("int") if one.by else F.lit(0)
        packed.append(one.frame.withColumn(BUCKET, bucket).mapInArrow(packer(tag), PACKED))
    rows = packed[0]
    for other in packed[1:]:
        rows = rows.unionAll(other)
    timed = any(has_watermark(one.frame) for one in inputs.values())
    address = Address(query.query, next_operator(), query.bootstrap, query.client)
    stepped = rows.groupBy("bucket").transformWithStateInPandas(
        KeyedProcessor(operator, schemas, address), "rows binary", "append", "eventtime" if timed else "none"
    )
    result = stepped.mapInArrow(unpacker(to_arrow_schema(output, timezone="UTC")), output)
    if event_time is None or not timed:
        return result
    return result.withColumn(event_time, F.col(f"`{event_time}`").alias(event_time, metadata={WATERMARK: 0}))


def has_watermark(frame: DataFrame) -> bool:
    """Whether an event time is kept of what the frame is made from."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    return "EventTimeWatermark" in plan.toString()


def polars_schema(schema: StructType) -> pl.Schema:
    """The columns of a DataFrame as an operator sees them."""
    import polars as pl
    from pyspark.sql.pandas.types import to_arrow_schema

    empty = pl.from_arrow(to_arrow_schema(schema, timezone="UTC").empty_table())
    return pl.DataFrame(empty).schema
