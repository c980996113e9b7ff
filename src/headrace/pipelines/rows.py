"""Rows of a query as JSON, by the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace import _kernel

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["to_json"]


def to_json(table: pa.Table, columns: Sequence[str]) -> pa.ChunkedArray:
    """One JSON object per row, with these columns in this order."""
    import pyarrow as pa

    made = [pa.record_batch(_kernel.arrow_to_json(batch, list(columns)))["json"] for batch in table.to_batches()]
    return pa.chunked_array(made, pa.binary())
