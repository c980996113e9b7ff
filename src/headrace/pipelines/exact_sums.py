"""Sums of doubles that come out the same whatever the order, the batches, and what was added and taken away again.

A double is an integer times a power of two. Integers of similar powers (a *bin* of 32) are added up exactly, with 128
bits: room for 2^43 values in each. A group of numbers has few bins, mostly one to three; its sum is made from those.
Infinities and NaN are counted in bins of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

__all__ = ["AMOUNT", "BIN", "split", "totals"]

BIN, AMOUNT = "_bin", "_amount"
_WIDTH = 5
_NAN, _PLUS, _MINUS = 10_000, 10_001, 10_002

Doubles = np.ndarray[Any, np.dtype[np.float64]]


def split(values: pl.Series) -> list[pl.Series]:
    """Of each double, none of them null, its bin and its amount there."""
    numbers = values.to_numpy()
    finite = np.isfinite(numbers)
    mantissa, exponent = np.frexp(np.where(finite, numbers, 0.0))
    exponent -= 53
    bins = exponent >> _WIDTH
    shift = np.left_shift(np.int64(1), (exponent & 31).astype(np.int64))
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    amounts = pl.Series(AMOUNT, whole).cast(pl.Int128) * pl.Series(shift).cast(pl.Int128)
    if not finite.all():
        special = np.where(np.isnan(numbers), _NAN, np.where(numbers > 0, _PLUS, _MINUS))
        bins = np.where(finite, bins, special)
        amounts = pl.select(pl.when(pl.Series(finite)).then(amounts).otherwise(1)).to_series().alias(AMOUNT)
    return [pl.Series(BIN, bins).cast(pl.Int16), amounts]


def totals(group: pl.Series, bins: pl.Series, amounts: pl.Series, groups: int) -> pl.Series:
    """The sum of each group, from its bins: ``group`` is which of the groups a bin belongs to."""
    frame = pl.DataFrame({"group": group, BIN: bins, AMOUNT: amounts}).sort("group", BIN, descending=[False, True])
    number, scale = frame["group"].to_numpy(), frame[BIN].to_numpy().astype(np.int32)
    special = scale >= _NAN
    high = frame[AMOUNT].cast(pl.Float64)
    low = (frame[AMOUNT] - high.cast(pl.Int128)).cast(pl.Float64)
    power = np.where(special, 0, scale << _WIDTH)
    parts = np.ldexp(high.to_numpy(), power), np.ldexp(low.to_numpy(), power)
    first = np.searchsorted(number, number, "left")
    rank = np.arange(len(number)) - first
    total, error = np.zeros(groups), np.zeros(groups)
    for position in range(int(rank.max(initial=-1)) + 1):
        at = (rank == position) & ~special
        for part in parts:
            total[number[at]], lost = _two_sum(total[number[at]], part[at])
            error[number[at]] += lost
    total += error
    for kind, value in ((_PLUS, np.inf), (_MINUS, -np.inf), (_NAN, np.nan)):
        with np.errstate(invalid="ignore"):
            total[number[scale == kind]] += value
    return pl.Series(total)


def _two_sum(left: Doubles, right: Doubles) -> tuple[Doubles, Doubles]:
    """The sum, and what rounding took from it."""
    total = left + right
    back = total - left
    return total, (left - (total - back)) + (right - back)
