"""Rows that an operator cannot process, as ``Step.dead`` wants them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

__all__ = ["dead", "readable", "timed"]


def dead(rows: pl.DataFrame, reason: str, detail: str) -> pl.DataFrame:
    """The rows as JSON, with the reason."""
    text = pl.struct(pl.all()).struct.json_encode() if rows.columns else pl.lit("{}")
    return readable(rows).select(pl.lit(reason).alias("reason"), pl.lit(detail).alias("detail"), text.alias("row"))


def readable(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with bytes as base64, also those inside of lists and structs: JSON has none."""
    return rows.with_columns(_readable(pl.col(name), kind) for name, kind in rows.schema.items() if _has_bytes(kind))


def _has_bytes(kind: PolarsDataType) -> bool:
    if isinstance(kind, pl.Struct):
        return any(_has_bytes(one.dtype) for one in kind.fields)
    return _has_bytes(kind.inner) if isinstance(kind, pl.List) else kind == pl.Binary


def _readable(value: pl.Expr, kind: PolarsDataType) -> pl.Expr:
    if isinstance(kind, pl.List):
        return value.list.eval(_readable(pl.element(), kind.inner))
    if isinstance(kind, pl.Struct):
        parts = {one.name: one.dtype for one in kind.fields}
        return value.struct.with_fields(_readable(pl.field(n), k) for n, k in parts.items() if _has_bytes(k))
    return value.bin.encode("base64")


def timed(rows: pl.DataFrame, time: str) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Rows that have a time; and the others as dead letters, if there are any."""
    if not rows[time].null_count():
        return rows, None
    lost = dead(rows.filter(pl.col(time).is_null()), "null-time", f"{time} is null")
    return rows.filter(pl.col(time).is_not_null()), lost
