"""What a store of views is: where a materialiser keeps rows, and what those who read ask.

A *build* is one attempt at a view: its rows and, per partition of the changelog, the offset of the next record to
take in. Both change in one transaction, so a build is right whenever it is looked at, whatever was killed when. At
most one build of a view is live: the one that is read. Another may be filled beside it and then takes its place at
once.

A view has one owner: the process that took it last (``take``). A store that several processes can reach refuses what
an earlier owner writes (``Fenced``), in the same transaction that would have written it.

A new kind of store implements ``Store``, ``Reader`` and ``Stores`` and passes ``tests/views/store_laws.py``. When it
does not answer it raises ``StoreAway``, and is opened again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import InvalidQuery
from headrace.views.catalog import ViewName, ViewSpec
from headrace.views.columns import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.views.question import Question

__all__ = [
    "ANSWER_S",
    "Answer",
    "Applied",
    "BadRecord",
    "Build",
    "Offsets",
    "Reader",
    "SqlLimits",
    "Store",
    "Stores",
    "offsets_of",
    "took_too_long",
    "version",
]

_VERSION = re.compile(r"(\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18})*)?")

Offsets = dict[int, int]
"""Per partition of a changelog: the offset of the next record, all before it being taken in."""


@dataclass
class Build:
    """One build of a view, as it is in the store."""

    number: int
    spec: ViewSpec
    topic_id: str
    """Of the topic that it is made from: if it has another id now, it is another topic."""
    live: bool
    offsets: Offsets = field(default_factory=dict)
    bad: int = 0
    last_bad: str | None = None

    def advance(self, partition: int, following: int, applied: Applied) -> None:
        """What was written is committed."""
        self.offsets[partition] = following
        self.bad += len(applied.bad)
        self.last_bad = applied.last_bad(partition) or self.last_bad


@dataclass(frozen=True)
class BadRecord:
    """A record that is no row of its view."""

    offset: int
    reason: str


@dataclass(frozen=True)
class Applied:
    """What came of some records."""

    upserts: int
    deletes: int
    bad: Sequence[BadRecord] = ()

    def last_bad(self, partition: int) -> str | None:
        """The last of the bad records, in a sentence."""
        if not self.bad:
            return None
        return f"partition {partition}, offset {self.bad[-1].offset}: {self.bad[-1].reason}"


class Store(Protocol):
    """Where the views of one app are kept. One thread uses it."""

    def builds(self) -> list[Build]:
        """What is in the store, oldest first; a look, from which nothing may be written."""
        ...

    def take(self, view: str) -> list[Build]:
        """Own a view from now on: its builds, oldest first, to go on from. Fenced if another process has taken it
        since this one did; ViewNotKept if what is there cannot be gone on from."""
        ...

    def let_go(self, view: str) -> None:
        """Own a view no more. Nobody is told; to take it again is to replace whoever has it then."""
        ...

    def begin(self, spec: ViewSpec, topic_id: str) -> Build:
        """A new, empty build from the topic of this id; live at once if the view has none yet."""
        ...

    def apply(self, build: Build, partition: int, records: pa.RecordBatch | None, following: int) -> Applied:
        """Take in records (None if there were none) up to the offset ``following``, in one transaction; the build's
        offsets say so afterwards. The last record of a key wins; a null value deletes; bad records are counted."""
        ...

    def swap(self, build: Build) -> None:
        """Make this build the live one, and drop the one that was."""
        ...

    def drop(self, build: Build) -> None:
        """Remove a build and its rows."""
        ...

    def lost(self) -> bool:
        """Whether somebody has removed what was in the store."""
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...


@dataclass(frozen=True)
class Answer:
    """Rows, and the versions of the views that they reflect."""

    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]
    versions: dict[str, Offsets]
    truncated: bool = False


ANSWER_S = 20.0
"""How long an answer to a question about one view may take."""


def took_too_long(seconds: float) -> InvalidQuery:
    """The error for a question that did not end in its time."""
    return InvalidQuery(f"the query took longer than {seconds:g} s", hint="ask for less at a time")


@dataclass(frozen=True)
class SqlLimits:
    """How much a stranger's SQL may cost."""

    seconds: float = 10.0
    rows: int = 10_000
    cells_bytes: int = 32 << 20
    value_bytes: int = 1 << 20


class Reader(Protocol):
    """Answers questions from what is committed; any thread may use it. Each answer is one snapshot."""

    def select(self, view: ViewName, question: Question) -> Answer:
        """Rows of one view."""
        ...

    def count(self, view: ViewName) -> int:
        """How many rows a view has."""
        ...

    def sql(self, statement: str, parameters: Sequence[Any], limits: SqlLimits) -> Answer:
        """A read-only statement over all views (``view`` or ``app.view``)."""
        ...


class Stores(Protocol):
    """A place for the stores of all apps."""

    def shared_as(self) -> str | None:
        """A name for this place, the same for all processes that reach it; None if this process has it to itself."""
        ...

    def open(self, app: str, log: str | None = None) -> Store:
        """The store of an app; made if it is not there. ``log``: the id of the cluster that its views are of. A place
        that several logs can reach refuses another one than before, with StoreAway."""
        ...

    def reader(self, apps: Callable[[], Sequence[str]]) -> Reader:
        """Reads all stores; ``apps`` says which apps there are now."""
        ...

    def close(self) -> None:
        """Let go of what readers hold."""
        ...


def version(offsets: Offsets) -> str:
    """Offsets as a version: ``0:12,1:7``."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def offsets_of(text: str) -> Offsets:
    """The offsets of a version; InvalidQuery if it is none."""
    found = _VERSION.fullmatch(text.strip())
    if found is None:
        raise InvalidQuery(f"{text!r} is not a version", hint="versions look like 0:12,1:7 (partition:offset)")
    pairs = (pair.split(":") for pair in text.strip().split(",") if pair)
    return {int(partition): int(offset) for partition, offset in pairs}
