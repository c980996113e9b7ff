"""What a query's function may know of its query while it runs: the operators and windows that it calls ask here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count

from headrace.pipelines.folders import Folder

__all__ = ["BUCKETS", "Building", "building", "current", "next_operator", "remark"]

BUCKETS = 8
"""Into how many buckets the keys of an operator are put, unless a query was rescaled."""


@dataclass(frozen=True, slots=True)
class Building:
    """The query that is being built."""

    query: str = ""
    """Its id; empty outside of a query."""
    event_times: tuple[str, ...] = ()
    """The event-time columns of what it reads."""
    bootstrap: str = ""
    """Where the broker is; empty while the query is only planned."""
    client: tuple[tuple[str, str], ...] = ()
    buckets: int = BUCKETS
    seed: Folder | None = None
    """Where the state to begin with is, if the query was rescaled."""
    unneeded: frozenset[tuple[int, str]] = frozenset()
    """Columns of operators' results, by the operator's number, that nothing looks at (``pruning``)."""
    outputs: dict[int, tuple[int, str]] = field(default_factory=dict, compare=False)
    """Filled by operators: Spark's ids of the columns of their results, and which these are."""
    numbers: count[int] = field(default_factory=count, compare=False)
    """Of its operators, whoever builds a part of the query."""
    remarks: list[str] = field(default_factory=list, compare=False)
    """Filled by operators: what the user should know, though it is no mistake."""


_current: ContextVar[Building] = ContextVar("building")


@contextmanager
def building(query: Building) -> Iterator[None]:
    """While a query's function runs, or a part of it is built after that."""
    token = _current.set(query)
    try:
        yield
    finally:
        _current.reset(token)


def current() -> Building:
    """The query that is being built; an empty one if none is."""
    found = _current.get(None)
    return Building() if found is None else found


def next_operator() -> int:
    """The number of the next keyed operator of the query, in the order of its function's calls."""
    return next(current().numbers)


def remark(sentence: str) -> None:
    """Have the user told something about the query when it starts."""
    current().remarks.append(sentence)
