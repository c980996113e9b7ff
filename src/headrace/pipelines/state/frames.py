"""Operators over DataFrames: ``keyed`` puts one into a query's plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.pipelines.building import current, next_operator
from headrace.pipelines.state.operator import Operator

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["WATERMARK", "Keyed", "bucket_of", "has_watermark", "keyed", "polars_schema"]

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
    from headrace.pipelines.state.passes import passes
    from headrace.pipelines.state.processor import Address, KeyedProcessor
    from headrace.pipelines.state.seed import seeded

    query = current()
    schemas = {tag: polars_schema(one.frame.schema) for tag, one in inputs.items()}
    placed = {tag: one.frame.withColumn(BUCKET, bucket_of(one.by, query.buckets)) for tag, one in inputs.items()}
    packed = [one.frame.mapInArrow(packer(one.columns), PACKED) for one in passes(placed)]
    rows = packed[0]
    for other in packed[1:]:
        rows = rows.unionAll(other)
    timed = any(has_watermark(one.frame) for one in inputs.values())
    address = Address(query.query, next_operator(), query.bootstrap, query.client, query.buckets)
    processor = KeyedProcessor(operator, schemas, _key_count(inputs, operator), address)
    seed = None if query.seed is None else seeded(rows.sparkSession, query.seed, address.operator)
    stepped = rows.groupBy("bucket").transformWithStateInPandas(
        processor, "rows binary", "append", "eventtime" if timed else "none", initialState=seed
    )
    result = stepped.mapInArrow(unpacker(to_arrow_schema(output, timezone="UTC")), output)
    if event_time is None or (result.isStreaming and not timed):
        return result
    return result.withColumn(event_time, F.col(f"`{event_time}`").alias(event_time, metadata={WATERMARK: 0}))


def bucket_of(by: Sequence[str], buckets: int) -> Column:
    """The bucket of a row. Spark's hash is the same for ever, so state finds its rows again after an upgrade."""
    from pyspark.sql import functions as F

    if not by:
        return F.lit(0)
    return F.pmod(F.xxhash64(*(f"`{name}`" for name in by)), F.lit(buckets)).cast("int")


def _key_count(inputs: Mapping[str, Keyed], operator: Operator) -> int:
    """How many columns decide the bucket: as many for every input, and for every table of the state."""
    (count,) = {len(one.by) for one in inputs.values()}
    if any(len(kind.key_of(count)) != count for kind in operator.tables.values()):
        raise HeadraceError(f"{type(operator).__name__} has a table whose rows do not say their bucket.")
    return count


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
