"""The operator in a bucket of its own, without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from headrace.pipelines.patterns import Pattern, compile_pattern
from headrace.pipelines.patterns.match import Matching
from tests.state.bucket import Bucket

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = pl.Schema(
    {
        "key": pl.String(),
        "at": pl.Datetime("us", "UTC"),
        "kind": pl.String(),
        "price": pl.Int64(),
        "share": pl.Float64(),
    }
)


def second(number: float) -> datetime:
    return BEGIN + timedelta(seconds=number)


def us(number: float) -> int:
    return int(second(number).timestamp() * 1_000_000)


def rows(*found: tuple[Any, ...]) -> pl.DataFrame:
    """Rows of (key, second, kind, price, share); the last may be left out."""
    filled = [(key, second(at), *rest, *[None] * (3 - len(rest))) for key, at, *rest in found]
    return pl.DataFrame(filled, schema=COLUMNS, orient="row")


def bucket(declared: Pattern) -> Bucket:
    return Bucket(Matching(compile_pattern(declared, COLUMNS), COLUMNS, declared.timeouts or declared.partials))


def step(one: Bucket, new: pl.DataFrame, until: float) -> list[dict[str, Any]]:
    """One batch, with the watermark at a second; what came out."""
    found = one.step({"rows": new}, us(until))
    return [] if found is None else found.to_dicts()


def steps(one: Bucket, batches: Iterable[tuple[pl.DataFrame, float]]) -> list[dict[str, Any]]:
    return [row for new, until in batches for row in step(one, new, until)]
