"""What an app declares, as frozen data: streams, tables and queries (views, derived streams, alerts)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from headrace.pipelines.places import Place
from headrace.pipelines.schema import Column, schema_text

if TYPE_CHECKING:
    from headrace.capture.declarations import Outbox, Source
    from headrace.pipelines.alerts import Channel
    from headrace.pipelines.time import DeviceClock

__all__ = ["EventTime", "Kind", "Query", "Stream", "TableDeclaration"]


class Kind(StrEnum):
    """What a query makes."""

    VIEW = "view"
    DERIVE = "derive"
    ALERT = "alert"


@dataclass(frozen=True, slots=True)
class EventTime:
    """Which column says when something happened, and how long to wait for rows that come late."""

    column: str
    lateness_ms: int = 0
    idle_after_ms: int = 30_000
    max_future_ms: int = 3_600_000


@dataclass(frozen=True, slots=True)
class Stream:
    """A topic of events with a schema."""

    name: str
    columns: tuple[Column, ...]
    place: Place
    event_time: EventTime | None = None
    clock: DeviceClock | None = None
    start: str = "earliest"
    raw: bool = False
    capture: Outbox | None = None
    """The outbox table that its events come from."""

    @property
    def topic(self) -> str:
        """Where its records lie."""
        return self.name

    @property
    def schema(self) -> str:
        """Its columns as Spark reads them."""
        return schema_text(self.columns)


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """A topic of changes by key."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    place: Place
    valid_from: str | None = None
    """The column that says since when a row holds; the time of its record if there is none."""
    capture: Source | None = None
    """The database's table that it is captured from. Then columns and key may be empty, until the database is asked."""
    history: bool = False
    """Whether its topic keeps every version."""

    @property
    def topic(self) -> str:
        """Where its changes lie."""
        return self.name

    @property
    def schema(self) -> str:
        """Its columns as Spark reads them."""
        return schema_text(self.columns)


@dataclass(frozen=True, slots=True)
class Query:
    """A view, a derived stream or an alert: one function or SQL text, one streaming query, one topic."""

    app: str
    name: str
    kind: Kind
    reads: tuple[str, ...]
    place: Place
    key: tuple[str, ...] = ()
    function: Callable[..., Any] | None = None
    sql: str | None = None
    to: Channel | None = None
    partitions: int = 1
    event_time: EventTime | None = None

    @property
    def id(self) -> str:
        """The query's name: also its consumer group and the stem of its transactional id."""
        return f"{self.app}.{self.name}"

    @property
    def topic(self) -> str:
        """Where its rows go: a derived stream has a name of its own, the rest is the app's."""
        return self.name if self.kind is Kind.DERIVE else self.id

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"
