"""Which build of a query to go on with.

A query that has changed is not the one that was built: it is refused, or built anew beside the old one as the next
*generation*, with its own topic, checkpoint, group and marks. Generation 1 has the query's plain name, generation N
the name with ``.gN`` behind it. A generation is found again by its fingerprint, so an interrupted rebuild goes on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import HeadraceError
from headrace.pipelines.declarations import Query
from headrace.pipelines.marks import Mark

__all__ = ["ChangedQuery", "CheckpointLost", "Generation", "choose", "generations_of"]

_NUMBER = re.compile(r"(.*?)(?:\.g(\d+))?/0")


class ChangedQuery(HeadraceError):
    """The file says something else than what was built."""


class CheckpointLost(HeadraceError):
    """A query has written, but its checkpoint is not there."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One build of a query."""

    query: Query
    number: int
    fingerprint: str
    is_new: bool = False

    @property
    def id(self) -> str:
        """What its group, marks, transactions and checkpoint are named after."""
        return self.query.id + self._suffix

    @property
    def topic(self) -> str:
        """Where its rows go."""
        return self.query.topic + self._suffix

    @property
    def _suffix(self) -> str:
        return f".g{self.number}" if self.number > 1 else ""


def generations_of(query: Query, marks: Mapping[str, bytes]) -> dict[int, Mark]:
    """The builds that have marks, by number."""
    found: dict[int, Mark] = {}
    for key, value in marks.items():
        parts = _NUMBER.fullmatch(key)
        if parts is not None and parts[1] == query.id:
            found[int(parts[2] or 1)] = Mark.read(value)
    return found


def choose(
    query: Query, fingerprint: str, found: Mapping[int, Mark], written: Mapping[int, Mark], *, rebuild: bool
) -> Generation:
    """The generation to run; ChangedQuery if that would be a new one beside others and was not asked for.

    ``written`` are those that came to write something: one that never did, because its function was wrong, is no
    reason to refuse its correction, which takes its place.
    """
    same = [number for number, mark in found.items() if mark.fingerprint == fingerprint]
    if same:
        return Generation(query, max(same), fingerprint)
    if written and not rebuild:
        raise ChangedQuery(
            f"{query} is not what was built: its function, its key or what it reads has changed.",
            detail=str(query.place),
            hint="`headrace run --rebuild` builds it anew beside the old one and swaps when it has caught up; "
            "or take the change back",
        )
    return Generation(query, max(written, default=0) + 1, fingerprint, is_new=True)
