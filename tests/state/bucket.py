"""A bucket of an operator without Spark: its state store is a dictionary, its workers have caches of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from headrace.pipelines.state import Operator
from headrace.pipelines.state.cache import Cache
from headrace.pipelines.state.log import BucketLog, Entry, Head


class Store(dict[tuple[Any, ...], tuple[Any, ...]]):
    """Spark's map state."""

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return self.get(key)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self[key] = value

    def removeKey(self, key: tuple[Any, ...]) -> None:
        del self[key]


class Bucket:
    """One bucket, its state as Spark would keep it, and two workers that take turns as they like."""

    def __init__(self, operator: Operator, cache_bytes: int = 1 << 30) -> None:
        self.operator = operator
        self.wake_us: int | None = None
        self.dead: list[pl.DataFrame] = []
        self.store = Store()
        self._head: str | None = None
        self._workers = [Cache(cache_bytes), Cache(cache_bytes)]

    @property
    def chunks(self) -> list[Entry]:
        """The chunks of its log."""
        return Head.read(self._head).chunks

    def step(
        self,
        delta: Mapping[str, pl.DataFrame],
        watermark_us: int | None = None,
        *,
        worker: int = 0,
        aborted: bool = False,
    ) -> pl.DataFrame | None:
        """One batch; what came out. If it is aborted, Spark forgets it, though the worker may not."""
        name, cache, store = ("query", 0, 0), self._workers[worker], Store(self.store)
        log = BucketLog(Head.read(self._head), store, "bucket 0")
        state = log.state(self.operator, cache.take(name))
        step = self.operator.step(state.tables, delta, watermark_us)
        changes = state.take(step.changes)
        if changes:
            log.append(changes)
        cache.put(name, log.head.last, state)
        if aborted:
            return None
        self.store, self._head = store, log.head.text()
        self.wake_us = step.wake_us
        if step.dead is not None and len(step.dead):
            self.dead.append(step.dead)
        return step.output

    def lose_caches(self) -> None:
        """As if all workers had been killed."""
        self._workers = [Cache(1 << 30), Cache(1 << 30)]

    def rows(self, table: str) -> pl.DataFrame:
        """What a new worker would find."""
        log = BucketLog(Head.read(self._head), self.store, "bucket 0")
        return log.state(self.operator, None).tables[table].rows()
