"""The state that a rescaled query begins with: the rows of its old state, put into their new buckets.

A seed is an Arrow file with a row per operator and bucket: ``operator int, bucket int, data binary, wake long`` (a
chunk; and when the bucket wants to be called, in milliseconds, -1 for never).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from headrace.pipelines.state.chunks import encode
from headrace.pipelines.state.inspect import BUCKET, TableState
from headrace.pipelines.state.operator import ID, Changes

if TYPE_CHECKING:
    from pyspark.sql import GroupedData, SparkSession

__all__ = ["seeded", "write_seed"]

_SCHEMA = pa.schema([("operator", pa.int32()), ("bucket", pa.int32()), ("data", pa.binary()), ("wake", pa.int64())])


def write_seed(spark: SparkSession, tables: Sequence[TableState], buckets: int, path: Path) -> None:
    """Put the rows of all tables into so many buckets, and write them."""
    found: dict[tuple[int, int], dict[str, Changes]] = {}
    wake = {one.operator: -1 if one.wake_ms is None else one.wake_ms for one in tables}
    for one in tables:
        rows = one.rows.drop(BUCKET).with_columns(_buckets(spark, one, buckets))
        for (bucket,), part in rows.partition_by(BUCKET, include_key=False, as_dict=True, maintain_order=True).items():
            numbered = part.select(pl.int_range(pl.len(), dtype=pl.UInt64).alias(ID), pl.all())
            found.setdefault((one.operator, int(bucket)), {})[one.table] = Changes(numbered, None, len(numbered))
    columns: list[list[Any]] = [
        [operator for operator, _ in found],
        [bucket for _, bucket in found],
        [encode(changes) for changes in found.values()],
        [wake[operator] for operator, _ in found],
    ]
    written = pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        writer.write_table(written)


def seeded(spark: SparkSession, path: Path, operator: int) -> GroupedData:
    """The seed of an operator, as Spark takes it."""
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    mine = table.filter(pa.compute.equal(table["operator"], operator)).drop_columns(["operator"])
    return spark.createDataFrame(mine, "bucket int, data binary, wake long").groupBy("bucket")


def _buckets(spark: SparkSession, one: TableState, buckets: int) -> pl.Series:
    """The bucket of each row, by the hash that packing uses."""
    from headrace.pipelines.state.frames import bucket_of

    keys = one.rows.select(one.key).to_arrow(compat_level=pl.CompatLevel.oldest())
    frame = spark.createDataFrame(keys.rename_columns([f"k{number}" for number in range(keys.num_columns)]))
    found = frame.select(bucket_of(frame.columns, buckets).alias(BUCKET)).toArrow()
    return pl.Series(BUCKET, found[BUCKET].to_pylist(), pl.Int32)
