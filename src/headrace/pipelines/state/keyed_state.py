"""The state of one bucket, in memory, and the chunks that it can be made from again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from headrace.errors import HeadraceError
from headrace.pipelines.state.chunks import ANEW
from headrace.pipelines.state.operator import ID, Changes, Operator
from headrace.pipelines.state.table import StateTable

__all__ = ["KeyedState", "WrongSeed", "ensure_fits"]


class WrongSeed(HeadraceError):
    """State that an operator is to begin with is another operator's."""


class KeyedState:
    """The tables of an operator."""

    def __init__(self, operator: Operator) -> None:
        self.tables = {name: StateTable(kind) for name, kind in operator.tables.items()}

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return sum(table.size for table in self.tables.values())

    def take(self, changes: Mapping[str, Changes]) -> dict[str, Changes]:
        """Apply what a step changed; returns it with ids, to be kept as a chunk. Empty if nothing changed."""
        numbered = {name: self.tables[name].numbered(change) for name, change in changes.items()}
        found = {n: change for n, change in numbered.items() if change.append is not None or change.remove is not None}
        self.replay([found])
        return found

    def replay(self, chunks: Iterable[Mapping[str, Changes]]) -> None:
        """Apply chunks, in order."""
        for chunk in chunks:
            for name, change in chunk.items():
                self.tables[name].apply(change)


def ensure_fits(seed: Mapping[str, Changes], operator: Operator, what: str) -> None:
    """Raise unless these are tables of the operator, with its columns."""
    for table, change in seed.items():
        kind = operator.tables.get(table)
        columns = None if kind is None else {ID: pl.UInt64(), **kind.columns}
        if change.append is not None and dict(change.append.schema) != columns:
            raise WrongSeed(
                f"{what} is to begin with a table {table!r} that is not its own.",
                detail=f"the table has the columns {', '.join(change.append.columns[1:])}",
                hint=ANEW,
            )
