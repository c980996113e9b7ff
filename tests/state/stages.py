"""Stages of operators without Spark: each with several buckets, rows sent to them by columns, their output shuffled."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import polars as pl

from headrace.pipelines.changelog import DELETED
from headrace.pipelines.state import Operator
from tests.state.bucket import Bucket

BUCKETS = 3


class Stage:
    """An operator over some buckets. ``by`` says for each input which columns choose the bucket."""

    def __init__(self, operator: Operator, by: Mapping[str, tuple[str, ...]], chance: random.Random) -> None:
        self.by, self.chance = by, chance
        self.buckets = [Bucket(operator) for _ in range(BUCKETS)]

    def step(self, inputs: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
        """One batch: what the buckets gave, in any order of buckets. Some are attempted before that, in vain."""
        parts = {name: _sent(frame, self.by[name]) for name, frame in inputs.items()}
        outputs = []
        for number in self.chance.sample(range(BUCKETS), BUCKETS):
            bucket = self.buckets[number]
            delta = {name: part[number] for name, part in parts.items()}
            if all(frame.is_empty() for frame in delta.values()):
                continue
            if self.chance.random() < 0.2:
                bucket.lose_caches()
            if self.chance.random() < 0.2:
                bucket.step(delta, worker=self.chance.randrange(2), aborted=True)
            output = bucket.step(delta, worker=self.chance.randrange(2))
            if output is not None:
                outputs.append(output)
        return pl.concat(outputs) if outputs else pl.DataFrame()


class Result:
    """A table as whoever reads its net changes has it; every change is checked against what was there."""

    def __init__(self, key: Iterable[str], *, before: bool) -> None:
        self.key, self.before = tuple(key), before
        self.rows: dict[tuple[object, ...], dict[str, object]] = {}

    def take(self, changes: pl.DataFrame) -> None:
        """Deletions count first, each is of a row that is there, and no row is written again as it was."""
        rows = changes.to_dicts()
        was = dict(self.rows)
        for row in (row for row in rows if row.pop(DELETED)):
            old = self.rows.pop(self._key(row))
            assert not self.before or old == row, "a deletion says what the row was"
        gone = set(was) - set(self.rows)
        seen = set()
        for row in changes.filter(~pl.col(DELETED)).drop(DELETED).to_dicts() if rows else ():
            key = self._key(row)
            assert key not in seen, "one row for each key"
            assert was.get(key) != row, "a row that did not change"
            assert not self.before or (key in was) == (key in gone), "the old row goes first"
            seen.add(key)
            self.rows[key] = row

    def _key(self, row: Mapping[str, object]) -> tuple[object, ...]:
        return tuple(row[name] for name in self.key)


def _sent(frame: pl.DataFrame, by: tuple[str, ...]) -> list[pl.DataFrame]:
    to = frame.select(by).hash_rows(5) % BUCKETS if len(frame) else pl.Series([], dtype=pl.UInt64)
    return [frame.filter(to == number) for number in range(BUCKETS)]


def in_batches(rows: list[tuple[object, ...]], chance: random.Random) -> Iterable[list[tuple[object, ...]]]:
    """The same rows in other batches."""
    at = 0
    while at < len(rows):
        size = chance.choice([1, 1, 2, 3, 8, 40])
        yield rows[at : at + size]
        at += size
