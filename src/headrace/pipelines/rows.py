"""Rows of a query as the records of its topic: JSON keys and values.

Timestamps are ISO-8601 in UTC with microseconds, decimals are strings, binary is base64.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["to_json"]


def to_json(table: pa.Table, columns: Sequence[str]) -> pa.Array:
    """One JSON object per row, with these columns in this order."""
    import pyarrow as pa

    rows = table.select(list(columns)).to_pylist(maps_as_pydicts="lossy")
    return pa.array([json.dumps(_plain(row), separators=(",", ":"), ensure_ascii=False) for row in rows], pa.string())


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case dt.datetime():
            utc = value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
            return utc.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case dt.date():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
