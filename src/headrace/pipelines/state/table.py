"""A table of an operator's state, in memory: rows with ids, looked up by key in time that does not grow with the table.

Rows lie in runs, each a frame with its rows' ids (ascending) and the sorted hashes of their keys. New rows are a new
run; runs of similar size are merged, so there are few. A row that goes is marked and leaves with the next merge.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from headrace.pipelines.state.operator import ID, Changes, TableType

__all__ = ["StateTable"]

_SEED = 17


Index = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Rows in the order of the hashes of their keys, and the hashes."""


class _Run:
    """Some rows of a table."""

    def __init__(self, rows: pl.DataFrame, indexes: dict[tuple[str, ...], Index] | None = None) -> None:
        self.rows = rows
        self.ids = rows[ID].to_numpy()
        self.alive: np.ndarray[Any, np.dtype[np.bool_]] | None = None
        self._indexes = indexes or {}

    @staticmethod
    def merged(runs: list[_Run]) -> _Run:
        """The living rows of runs that follow each other. Their indexes are merged too, which is less than sorting."""
        rows = pl.concat([run.living() for run in runs], rechunk=True)
        return _Run(rows, {by: _merged([run.living_index(by) for run in runs]) for by in runs[0]._indexes})

    def __len__(self) -> int:
        return len(self.ids)

    def remove(self, ids: np.ndarray[Any, Any]) -> int:
        """Mark the rows of these ids, if they are here; how many they were."""
        at = np.searchsorted(self.ids, ids)
        at = at[(at < len(self.ids)) & (self.ids[np.minimum(at, len(self.ids) - 1)] == ids)]
        if not len(at):
            return 0
        if self.alive is None:
            self.alive = np.ones(len(self.ids), np.bool_)
        before = int(self.alive[at].sum())
        self.alive[at] = False
        return before

    def index(self, by: tuple[str, ...]) -> Index:
        """Made when first asked for."""
        if by not in self._indexes:
            hashes = self.rows.select(by).hash_rows(_SEED).to_numpy() if by else np.zeros(len(self.rows), np.uint64)
            order = np.argsort(hashes, kind="stable")
            self._indexes[by] = (order, hashes[order])
        return self._indexes[by]

    def living_index(self, by: tuple[str, ...]) -> Index:
        """The index, for the rows that ``living`` gives."""
        order, hashes = self.index(by)
        if self.alive is None:
            return order, hashes
        kept = self.alive[order]
        return (np.cumsum(self.alive) - 1)[order[kept]], hashes[kept]

    def find(
        self, hashes: np.ndarray[Any, Any], by: tuple[str, ...]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """For ascending hashes of keys: (which key, which row) of every row that may be meant."""
        order, known = self.index(by)
        first = np.searchsorted(known, hashes, "left")
        here = np.flatnonzero(known[np.minimum(first, len(known) - 1)] == hashes)
        first = first[here]
        count = np.searchsorted(known, hashes[here], "right") - first
        key = np.repeat(here, count)
        within = np.arange(len(key)) - np.repeat(np.cumsum(count) - count, count)
        row = order[np.repeat(first, count) + within]
        if self.alive is not None:
            kept = self.alive[row]
            key, row = key[kept], row[kept]
        return key, row

    def living(self) -> pl.DataFrame:
        return self.rows if self.alive is None else self.rows.filter(pl.Series(self.alive))


class StateTable:
    """What an operator reads of a table; the mechanism changes it with ``apply``."""

    def __init__(self, kind: TableType) -> None:
        self.kind = kind
        self.schema = pl.Schema({ID: pl.UInt64(), **kind.columns})
        self._runs: list[_Run] = []
        self._gone = 0
        self._next_id = 0

    def __len__(self) -> int:
        """How many rows there are."""
        return sum(map(len, self._runs)) - self._gone

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return sum(int(run.rows.estimated_size()) + 24 * len(run) for run in self._runs)

    def lookup(self, keys: pl.DataFrame, by: tuple[str, ...] | None = None) -> pl.DataFrame:
        """The rows of these keys (a frame with the ``by`` columns; each key once is enough), with their ids.

        Null is a key like any other. The order is that of addition within a key, no order between keys. Other columns
        than the table's own ``by`` have an index too once they were asked for.
        """
        by = self.kind.by if by is None else by
        if not self._runs or keys.is_empty():
            return self.schema.to_frame()
        wanted = keys.select(pl.col(name).cast(self.schema[name]) for name in by).unique()
        hashed = wanted.hash_rows(_SEED)
        ascending = hashed.arg_sort()
        hashes, at = hashed.gather(ascending).to_numpy(), ascending.to_numpy()
        found = []
        for run in self._runs:
            key, row = run.find(hashes, by)
            if len(row):
                rows = run.rows[row]
                same = _equal(rows, wanted[at[key]], by)
                found.append(rows if same.all() else rows.filter(same))
        return pl.concat(found) if found else self.schema.to_frame()

    def where(self, condition: pl.Expr) -> pl.DataFrame:
        """The rows for which this holds, with their ids; it looks at every row."""
        found = [rows for run in self._runs if len(rows := _filtered(run, condition))]
        return pl.concat(found) if found else self.schema.to_frame()

    def rows(self) -> pl.DataFrame:
        """All rows, with their ids, in the order of addition."""
        found = [run.living() for run in self._runs]
        return pl.concat(found).sort(ID) if found else self.schema.to_frame()

    def min(self, column: str, above: int | None = None) -> int | None:
        """The smallest value (larger than ``above``) of a column of numbers or times, those as microseconds; None if
        there is none."""
        found = []
        for run in self._runs:
            values = run.rows[column] if run.alive is None else run.rows[column].filter(pl.Series(run.alive))
            numbers = values.to_physical()
            smallest = (numbers if above is None else numbers.filter(numbers > above)).min()
            if smallest is not None:
                found.append(int(smallest))  # type: ignore[arg-type]
        return min(found, default=None)

    def numbered(self, changes: Changes) -> Changes:
        """The changes with ids for the rows that are added."""
        remove = changes.remove if changes.remove is not None and len(changes.remove) else None
        if changes.append is None or changes.append.is_empty():
            return Changes(None, remove, self._next_id)
        rows = changes.append.select(
            pl.int_range(self._next_id, self._next_id + len(changes.append), dtype=pl.UInt64).alias(ID),
            *(pl.col(name).cast(kind) for name, kind in self.kind.columns.items()),
        )
        return Changes(rows, remove, self._next_id + len(rows))

    def apply(self, changes: Changes) -> None:
        """Take in changes whose rows have ids."""
        if changes.remove is not None:
            ids = changes.remove.to_numpy()
            self._gone += sum(run.remove(ids) for run in self._runs)
        if changes.append is not None and len(changes.append):
            self._runs.append(_Run(changes.append.select(self.schema.names())))
        self._next_id = max(self._next_id, changes.next_id)
        self._merge()

    def _merge(self) -> None:
        runs = self._runs
        while len(runs) > 1 and len(runs[-1]) * 2 >= len(runs[-2]):
            self._merge_from(len(runs) - 2)
        if self._gone > 1024 and self._gone * 2 > sum(map(len, runs)):
            self._merge_from(0)

    def _merge_from(self, first: int) -> None:
        merged = self._runs[first:]
        run = _Run.merged(merged)
        self._gone -= sum(map(len, merged)) - len(run)
        self._runs[first:] = [run] if len(run) else []


def _merged(indexes: list[Index]) -> Index:
    """Indexes of runs that follow each other as one. The sort finds ascending stretches and merges them."""
    starts = np.cumsum([0, *(len(order) for order, _ in indexes)])
    order = np.concatenate([order + start for (order, _), start in zip(indexes, starts, strict=False)])
    hashes = np.concatenate([hashes for _, hashes in indexes])
    by_hash = np.argsort(hashes, kind="stable")
    return order[by_hash], hashes[by_hash]


def _filtered(run: _Run, condition: pl.Expr) -> pl.DataFrame:
    return run.rows.filter(condition) if run.alive is None else run.rows.filter(condition & pl.Series(run.alive))


def _equal(left: pl.DataFrame, right: pl.DataFrame, by: tuple[str, ...]) -> pl.Series:
    """Row by row, whether the keys are the same: equal hashes are not proof."""
    same = pl.Series(np.ones(len(left), np.bool_))
    for name in by:
        same &= left[name].eq_missing(right[name])
    return same
