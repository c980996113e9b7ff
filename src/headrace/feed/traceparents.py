"""Which traces records belong to: their header ``traceparent``, without Python for each record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.tracing import HEADER, MOST, is_sampled

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["sampled", "traceparent_column"]


def traceparent_column(records: pa.RecordBatch) -> pa.Array:
    """The header of each record as text; null where it has none, or no good one. Of several the first counts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows, values = _found(records)
    if not len(values):
        return pa.nulls(records.num_rows, pa.string())
    at = pc.index_in(pa.array(range(records.num_rows), pa.int64()), value_set=rows.cast(pa.int64()))
    return values.take(at)


def sampled(found: pa.Array | pa.RecordBatch) -> list[str]:
    """The traceparents of some records, or in a column of them: different ones, of traces that are recorded, the first
    few."""
    import pyarrow as pa

    column = _found(found)[1] if isinstance(found, pa.RecordBatch) else found
    different: list[str | None] = column.unique()[: 4 * MOST].to_pylist()
    return [one for one in different if one is not None and is_sampled(one)][:MOST]


def _found(records: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """The rows that have the header, and what it says."""
    import pyarrow as pa
    import pyarrow.compute as pc

    headers = records.column("headers")
    pairs = headers.flatten()
    wanted = pc.equal(pairs.field("key"), HEADER)
    values = pairs.field("value").filter(wanted)
    plain = pc.fill_null(pc.match_substring_regex(values, "^[0-9a-f-]{55,200}$"), False)
    rows = pc.list_parent_indices(headers).filter(wanted).filter(plain)
    return rows, values.filter(plain).cast(pa.string())
