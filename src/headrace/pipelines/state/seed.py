"""The state that a rescaled query begins with: the rows of its old state, put into their new buckets.

A seed is a folder of Parquet files with rows ``operator int, bucket int, data binary, wake long`` (a chunk; and when
the bucket wants to be called, in milliseconds, -1 for never). Old buckets are put into new ones as many at a time as
fit ``_AT_ONCE``, so that a state need not fit into memory; so a new bucket may have a chunk in several files. The rows
of a key come from one old bucket, so they are in one chunk, in their order. Spark reads the files in its workers.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.pipelines.checkpoint import SEED
from headrace.pipelines.folders import Folder
from headrace.pipelines.state.chunks import encode
from headrace.pipelines.state.inspect import BUCKET, TableState, together
from headrace.pipelines.state.operator import ID, Changes

if TYPE_CHECKING:
    from pyspark.sql import GroupedData, SparkSession

__all__ = ["seeded", "write_seed"]

_AT_ONCE = 64 << 20
_SCHEMA = pa.schema([("operator", pa.int32()), ("bucket", pa.int32()), ("data", pa.binary()), ("wake", pa.int64())])


def write_seed(spark: SparkSession, parts: Iterable[TableState], buckets: int, checkpoint: Folder) -> None:
    """The rows of all tables, put into so many buckets, as files of a checkpoint."""
    _write(checkpoint, 0, [])
    for number, some in enumerate(_in_turn(parts), 1):
        _write(checkpoint, number, _rows(spark, some, buckets))


def _in_turn(parts: Iterable[TableState]) -> Iterator[list[TableState]]:
    """Parts of one operator's tables, as many as fit; at least one."""
    found: list[TableState] = []
    size = 0
    for part in parts:
        more = int(part.rows.estimated_size())
        if found and (size + more > _AT_ONCE or part.operator != found[0].operator):
            yield found
            found, size = [], 0
        found.append(part)
        size += more
    if found:
        yield found


def _rows(spark: SparkSession, parts: list[TableState], buckets: int) -> list[tuple[Any, ...]]:
    found: dict[int, dict[str, Changes]] = {}
    for one in together(parts):
        rows = one.rows.drop(BUCKET).with_columns(_buckets(spark, one, buckets))
        for (bucket,), part in rows.partition_by(BUCKET, include_key=False, as_dict=True, maintain_order=True).items():
            numbered = part.select(pl.int_range(pl.len(), dtype=pl.UInt64).alias(ID), pl.all())
            found.setdefault(int(bucket), {})[one.table] = Changes(numbered, None, len(numbered))
    wake = -1 if parts[0].wake_ms is None else parts[0].wake_ms
    return [(parts[0].operator, bucket, encode(changes), wake) for bucket, changes in found.items()]


def _write(checkpoint: Folder, number: int, rows: list[tuple[Any, ...]]) -> None:
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(_SCHEMA)]
    file = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=_SCHEMA), file, compression="none", use_dictionary=False)
    checkpoint.write(f"{SEED}/{number}.parquet", file.getvalue())


def seeded(spark: SparkSession, checkpoint: Folder, operator: int) -> GroupedData:
    """The seed of an operator, as Spark takes it."""
    from pyspark.sql import functions as F

    files = spark.read.schema("operator int, bucket int, data binary, wake long").parquet(f"{checkpoint.where}/{SEED}")
    return files.where(F.col("operator") == operator).drop("operator").groupBy("bucket")


def _buckets(spark: SparkSession, one: TableState, buckets: int) -> pl.Series:
    """The bucket of each row, by the hash that packing uses."""
    from headrace.pipelines.state.frames import bucket_of

    keys = one.rows.select(one.key).to_arrow(compat_level=pl.CompatLevel.oldest())
    frame = spark.createDataFrame(keys.rename_columns([f"k{number}" for number in range(keys.num_columns)]))
    found = frame.select(bucket_of(frame.columns, buckets).alias(BUCKET)).toArrow()
    return pl.Series(BUCKET, found[BUCKET].to_pylist(), pl.Int32)
