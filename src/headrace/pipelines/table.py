"""``hr.Table``: what a function gets for a table or a view that it reads.

The records of a table's topic are changes, not rows: counting them counts changes. So a table is not a DataFrame; using
it as one is an error that names what to use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from headrace.errors import InvalidDeclaration
from headrace.pipelines.places import caller

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Table", "computed"]

_OPERATORS = {
    "_jdf": "hr.enrich (stream and table) or hr.join (two tables)",
    "join": "hr.enrich (stream and table) or hr.join (two tables)",
    "crossJoin": "hr.join",
    "groupBy": "hr.aggregate",
    "groupby": "hr.aggregate",
    "agg": "hr.aggregate",
    "count": "hr.aggregate",
    "distinct": "hr.count_distinct",
    "dropDuplicates": "hr.latest",
    "orderBy": "hr.top",
    "sort": "hr.top",
    "limit": "hr.top",
}


class Table:
    """A table by its changes: what a view's function gets for a table or another view, and what some operators return.

    It is no DataFrame, because its records are changes and not rows: give it to ``hr.enrich``, ``hr.join``,
    ``hr.aggregate``, ``hr.top``, ``hr.latest`` or ``hr.history``. ``changes`` is the DataFrame of its changes.
    """

    def __init__(
        self,
        name: str,
        key: tuple[str, ...],
        changes: Callable[[], DataFrame],
        versions: Callable[[], DataFrame] | None = None,
        *,
        pairs: Callable[[], DataFrame] | None = None,
        columns: Mapping[str, str] | None = None,
        history: bool = False,
    ) -> None:
        self.name = name
        self.key = key
        self.keeps_history = history
        self._changes_of = changes
        self._versions_of = versions
        self._pairs_of = pairs
        self._columns = columns

    @property
    def columns(self) -> Mapping[str, str]:
        """Its columns, and their types in Spark's simple form."""
        if self._columns is None:
            fields = self.changes.schema.fields
            self._columns = {field.name: field.dataType.simpleString() for field in fields if field.name != "_deleted"}
        return self._columns

    @property
    def net(self) -> bool:
        """Whether it is computed in this query: then the changes of a batch are what changed in all (``changelog``)."""
        return self._pairs_of is not None

    @property
    def pairs(self) -> DataFrame:
        """Of a table that is net: changes as ``changes`` has them, each with a deletion of the whole row as it was."""
        return self.changes if self._pairs_of is None else self._pairs_of()

    @property
    def changes(self) -> DataFrame:
        """The changes as rows, in the order they were made: all columns, and ``_deleted``."""
        return self._changes_of()

    @property
    def versions(self) -> DataFrame:
        """The changes as ``changes`` has them, with ``_time``, since when each holds, and ``_version``, its id."""
        if self._versions_of is None:
            raise InvalidDeclaration(
                f"table {self.name!r} is computed in this query, so its versions have no times.",
                detail=str(caller()),
                hint="make it a view of its own, and read that",
            )
        return self._versions_of()

    def __repr__(self) -> str:
        return f"Table({self.name!r}, key={list(self.key)})"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") or (name.startswith("_") and name not in _OPERATORS):
            raise AttributeError(name)
        self._refuse(name, _OPERATORS.get(name))

    def __getitem__(self, name: object) -> NoReturn:
        self._refuse(f"[{name!r}]", None)

    def _refuse(self, used: str, operator: str | None) -> NoReturn:
        used = "as an argument" if used == "_jdf" else f".{used}" if not used.startswith("[") else used
        better = f"use {operator}, or " if operator else "use "
        raise InvalidDeclaration(
            f"table {self.name!r} is used as a DataFrame ({used}), but its records are changes, not rows.",
            detail=str(caller()),
            hint=f"{better}{self.name}.changes for the raw changes (a row per change, column _deleted)",
        )


def computed(name: str, key: tuple[str, ...], columns: Mapping[str, str], make: Callable[[bool], DataFrame]) -> Table:
    """A table that an operator gives; ``make`` puts it into the plan, and is told whether old rows are asked for."""
    return Table(name, key, lambda: make(False), pairs=lambda: make(True), columns=columns)
