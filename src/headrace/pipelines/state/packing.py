"""Rows of many keys as few blobs: what Spark shuffles for an operator, and what it gets back.

A packed row is ``bucket int, tag string, task int, number int, rows binary``: the rows (an Arrow IPC stream) of one
bucket that a task had of one input. Task and number are the order in which they were read. Blobs are compressed:
between Python and Java, and through the shuffle, they are copied half a dozen times.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping

import polars as pl
import pyarrow as pa

from headrace.pipelines.worker import settle

__all__ = ["BUCKET", "PACKED", "packer", "read_blob", "unpacker", "write_blob"]

BUCKET = "_bucket"
PACKED = "bucket int, tag string, task int, number int, rows binary"
_ARROW = pa.schema(
    [
        ("bucket", pa.int32()),
        ("tag", pa.string()),
        ("task", pa.int32()),
        ("number", pa.int32()),
        ("rows", pa.binary()),
    ]
)
_ROWS_AT_ONCE = 500_000

Arrow = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def packer(inputs: Mapping[str, Mapping[str, str]]) -> Arrow:
    """Packs the rows of inputs: for each, its columns among those that come, and their names.

    One of them is named ``_bucket``; where that is null, the row is none of this input's.
    """

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        for number, table in enumerate(_gathered(batches)):
            every = pl.DataFrame(pl.from_arrow(table))
            for tag, columns in inputs.items():
                blobs = _by_bucket(every.select(pl.col(given).alias(name) for given, name in columns.items()))
                yield pa.RecordBatch.from_pydict(
                    {
                        "bucket": list(blobs),
                        "tag": [tag] * len(blobs),
                        "task": [task] * len(blobs),
                        "number": [number] * len(blobs),
                        "rows": list(blobs.values()),
                    },
                    schema=_ARROW,
                )
        settle("packing")

    return pack


def _by_bucket(rows: pl.DataFrame) -> dict[int, bytes]:
    if rows[BUCKET].null_count():
        rows = rows.filter(pl.col(BUCKET).is_not_null())
    parts = rows.partition_by(BUCKET, include_key=False, as_dict=True, maintain_order=True)
    return {bucket: write_blob(part) for (bucket,), part in parts.items()}


def unpacker(output: pa.Schema) -> Arrow:
    """Gives back the rows of blobs, with the columns that Spark was promised."""

    def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column(0):
                table = read_blob(blob.as_buffer()).select(output.names).to_arrow(compat_level=pl.CompatLevel.oldest())
                yield from table.cast(output).to_batches()

    return unpack


def write_blob(rows: pl.DataFrame) -> bytes:
    """Rows as bytes."""
    written = io.BytesIO()
    rows.write_ipc_stream(written, compression="zstd")
    return written.getvalue()


def read_blob(blob: bytes | pa.Buffer) -> pl.DataFrame:
    """Bytes as rows."""
    return pl.read_ipc_stream(io.BytesIO(blob))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together: each bucket gets few large blobs instead of many small ones."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= _ROWS_AT_ONCE:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting and any(one.num_rows for one in waiting):
        yield pa.Table.from_batches(waiting)
