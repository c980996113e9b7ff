"""What a keyed operator is: a pure function over frames.

In each batch, for each bucket of keys that has new rows or is due, the operator gets its state, the new rows of each of
its inputs and the watermark, and says what comes out and how its state changes. It keeps nothing itself: the same
state and rows give the same step, so a batch that is done again changes nothing.

Times are microseconds since 1970. New rows are always after the watermark of the batch before (the source took out
others); an operator before this one lets them out when the watermark has passed them. So rows at or before the
watermark, new or waiting in the state, are complete: nothing more can come before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import polars as pl

    from headrace.pipelines.state.table import StateTable

__all__ = ["ID", "Changes", "Operator", "State", "Step", "TableType"]

ID = "~id"
"""The column of a state table's rows that tells them apart; ``Changes.remove`` takes its values."""

State = Mapping[str, "StateTable"]
"""The tables of one bucket, to read: see ``StateTable``."""


@dataclass(frozen=True, slots=True)
class TableType:
    """A table of the state: its columns, and those that its rows are looked up by."""

    columns: Mapping[str, pl.DataType]
    by: tuple[str, ...]
    key: tuple[str, ...] | None = None
    """The columns that decide in which bucket a row is, in the order and types of the inputs' ``by``; the first of
    ``by`` if it is not said. Needed where a query is rescaled."""

    def key_of(self, count: int) -> tuple[str, ...]:
        """The columns that decide the bucket, of which there are so many."""
        return self.by[:count] if self.key is None else self.key


@dataclass(frozen=True, slots=True)
class Changes:
    """What becomes of a table: rows (with its columns) that are added, and the ids of rows that go."""

    append: pl.DataFrame | None = None
    remove: pl.Series | None = None
    next_id: int = 0
    """No row has had this id or a larger one. The mechanism's, not the operator's."""


@dataclass(frozen=True, slots=True)
class Step:
    """What an operator made of a batch's rows."""

    output: pl.DataFrame | None = None
    """Rows with the operator's output columns."""
    changes: Mapping[str, Changes] = field(default_factory=dict)
    """By table."""
    wake_us: int | None = None
    """Called again once the watermark has reached this, also if no rows come. Said anew by every step."""
    dead: pl.DataFrame | None = None
    """Rows that cannot be processed: columns ``reason``, ``detail`` and ``row`` (JSON as text)."""


class Operator(Protocol):
    """Implementations are frozen data that can be pickled."""

    @property
    def tables(self) -> Mapping[str, TableType]:
        """The state, by table name."""
        ...

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """All new rows by input (every input is there, maybe empty); no watermark if there is no event time."""
        ...
