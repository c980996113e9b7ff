"""Rows that an operator cannot process, as ``Step.dead`` wants them."""

from __future__ import annotations

import polars as pl

__all__ = ["dead", "timed"]


def dead(rows: pl.DataFrame, reason: str, detail: str) -> pl.DataFrame:
    """The rows as JSON, with the reason."""
    readable = rows.with_columns(pl.col(pl.Binary).bin.encode("base64"))
    text = pl.struct(pl.all()).struct.json_encode() if rows.columns else pl.lit("{}")
    return readable.select(pl.lit(reason).alias("reason"), pl.lit(detail).alias("detail"), text.alias("row"))


def timed(rows: pl.DataFrame, time: str) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Rows that have a time; and the others as dead letters, if there are any."""
    if not rows[time].null_count():
        return rows, None
    lost = dead(rows.filter(pl.col(time).is_null()), "null-time", f"{time} is null")
    return rows.filter(pl.col(time).is_not_null()), lost
