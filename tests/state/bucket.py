"""A bucket of an operator without Spark: steps, and what Spark and its workers do to the state between them."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from headrace.pipelines.state import Operator
from headrace.pipelines.state.chunks import decode, encode, merged, to_merge
from headrace.pipelines.state.keyed_state import KeyedState


class Bucket:
    """One bucket, its chunks as Spark would keep them, and two workers that take turns as they like."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.chunks: list[bytes] = []
        self.wake_us: int | None = None
        self.dead: list[pl.DataFrame] = []
        self._workers: dict[int, tuple[KeyedState, int]] = {}
        self._written = 0
        self._merged_up_to = 0

    def step(
        self, delta: Mapping[str, pl.DataFrame], watermark_us: int | None = None, *, worker: int = 0
    ) -> pl.DataFrame | None:
        """One batch; what came out."""
        state = self._state(worker)
        step = self.operator.step(state.tables, delta, watermark_us)
        changes = state.take(step.changes)
        if changes:
            self.chunks.append(encode(changes))
            self._written += 1
            self._merge()
        self._workers[worker] = (state, self._written)
        self.wake_us = step.wake_us
        if step.dead is not None and len(step.dead):
            self.dead.append(step.dead)
        return step.output

    def lose_caches(self) -> None:
        """As if all workers had been killed."""
        self._workers.clear()

    def rows(self, table: str) -> pl.DataFrame:
        """What a new worker would find."""
        return self._rebuilt().tables[table].rows()

    def _rebuilt(self) -> KeyedState:
        state = KeyedState(self.operator)
        state.replay(map(decode, self.chunks))
        return state

    def _state(self, worker: int) -> KeyedState:
        if worker not in self._workers:
            return self._rebuilt()
        state, seen = self._workers[worker]
        behind = self._written - seen
        if behind and self._written - behind < self._merged_up_to:
            return self._rebuilt()
        state.replay(map(decode, self.chunks[len(self.chunks) - behind :]))
        return state

    def _merge(self) -> None:
        wanted = to_merge([len(chunk) for chunk in self.chunks])
        if wanted is not None:
            parts = [decode(self.chunks[at]) for at in wanted]
            self._merged_up_to = self._written - (len(self.chunks) - wanted.stop)
            self.chunks[wanted.start : wanted.stop] = [encode(merged(parts, oldest=wanted.start == 0))]
