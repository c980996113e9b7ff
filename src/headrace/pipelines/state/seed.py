"""The state that a rescaled query begins with: the rows of its old state, put into their new buckets.

A seed is an Arrow file with a row per operator and bucket: ``operator int, bucket int, data binary, wake long`` (a
chunk; and when the bucket wants to be called, in milliseconds, -1 for never).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from headrace.pipelines.checkpoint import SEED
from headrace.pipelines.folders import Folder
from headrace.pipelines.state.chunks import encode
from headrace.pipelines.state.inspect import BUCKET, TableState
from headrace.pipelines.state.operator import ID, Changes

if TYPE_CHECKING:
    from pyspark.sql import GroupedData, SparkSession

__all__ = ["seed_of", "seeded"]

_SCHEMA = pa.schema([("operator", pa.int32()), ("bucket", pa.int32()), ("data", pa.binary()), ("wake", pa.int64())])


def seed_of(spark: SparkSession, tables: Sequence[TableState], buckets: int) -> bytes:
    """The rows of all tables, put into so many buckets, as a file."""
    found: dict[tuple[int | None, int], dict[str, Changes]] = {}
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
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _SCHEMA) as writer:
        writer.write_table(written)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def seeded(spark: SparkSession, checkpoint: Folder, operator: int) -> GroupedData:
    """The seed of an operator, as Spark takes it."""
    table = pa.ipc.open_file(pa.py_buffer(checkpoint.read(SEED))).read_all()
    mine = table.filter(pa.compute.equal(table["operator"], operator)).drop_columns(["operator"])
    return spark.createDataFrame(mine, "bucket int, data binary, wake long").groupBy("bucket")


def _buckets(spark: SparkSession, one: TableState, buckets: int) -> pl.Series:
    """The bucket of each row, by the hash that packing uses."""
    from headrace.pipelines.state.frames import bucket_of

    keys = one.rows.select(one.key).to_arrow(compat_level=pl.CompatLevel.oldest())
    frame = spark.createDataFrame(keys.rename_columns([f"k{number}" for number in range(keys.num_columns)]))
    found = frame.select(bucket_of(frame.columns, buckets).alias(BUCKET)).toArrow()
    return pl.Series(BUCKET, found[BUCKET].to_pylist(), pl.Int32)
