"""Rows of many keys in the order of time, and for each of other rows the span of them that lies in an interval.

Keys are numbers here (``codes``), times are microseconds. A span is found by search, so that a key with very many rows
costs no more than what lies in the intervals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["InOrder", "codes", "in_order", "members", "microseconds"]


def codes(*frames: pl.DataFrame) -> list[NDArray[np.int64]]:
    """A number for every row of frames (with the same columns), equal where all columns are equal, null too."""
    together, names = pl.concat(frames), frames[0].columns
    row = pl.int_range(pl.len(), dtype=pl.Int64).alias("~row")
    numbers = together.with_columns(row).select(pl.col("~row").min().over(names)).to_series().to_numpy()
    return np.split(numbers, np.cumsum([len(frame) for frame in frames])[:-1])


def microseconds(times: pl.Series) -> NDArray[np.int64]:
    """Times (none of them null) as numbers."""
    return times.to_physical().cast(pl.Int64).to_numpy()


@dataclass(frozen=True, slots=True)
class InOrder:
    """Rows ordered by key and time; rows with the same stay as they were."""

    order: NDArray[np.int64]
    """Which row is at each place."""
    _places: NDArray[np.int64]
    _times: NDArray[np.int64]

    def spans(
        self, keys: NDArray[np.int64], low: NDArray[np.int64], high: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first place, and the one after the last, of each key's rows whose time is from ``low`` to ``high``."""
        width = len(self._times) + 1
        first = np.searchsorted(self._places, keys * width + np.searchsorted(self._times, low, "left"))
        last = np.searchsorted(self._places, keys * width + np.searchsorted(self._times, high, "right"))
        return first, np.maximum(first, last)


def in_order(keys: NDArray[np.int64], times: NDArray[np.int64]) -> InOrder:
    """The order of rows by key and time."""
    by_time = np.argsort(times, kind="stable")
    places = np.empty(len(times), np.int64)
    places[by_time] = np.arange(len(times))
    places += keys * (len(times) + 1)
    order = np.argsort(places)
    return InOrder(order, places[order], times[by_time])


def members(first: NDArray[np.int64], last: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every place of every span: (which span, which place)."""
    count = last - first
    which = np.repeat(np.arange(len(count)), count)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
