"""The app: what a user's file declares, in order.

A view reads what was declared above it, so there are no cycles and the order of declaration is an order to build in.
Every mistake that can be seen without Spark is an error on the line that makes it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, TypeVar

from headrace.capture.declarations import Captured, Outbox, Source
from headrace.errors import HeadraceError, InvalidDeclaration
from headrace.pipelines.alerts import Channel
from headrace.pipelines.declarations import EventTime, Kind, Query, Stream, TableDeclaration
from headrace.pipelines.durations import milliseconds
from headrace.pipelines.places import Place, caller, of_function, wrong
from headrace.pipelines.schema import BadSchema, Column, parse_schema
from headrace.pipelines.sql import CHANGES, names_read
from headrace.pipelines.time import DeviceClock, moment_ms

__all__ = ["App", "Declaration"]

Declaration = Stream | TableDeclaration | Query
Function = TypeVar("Function", bound=Callable[..., Any])
D = TypeVar("D", Stream, TableDeclaration, Query)

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_TIMES = ("timestamp",)


class App:
    """Streams, tables, views, derived streams and alerts that belong together: ``app = hr.App("shop")``."""

    def __init__(self, name: str) -> None:
        self.place = caller()
        self.name = _ensure_name(name, "app", self.place)
        self._declared: dict[str, Declaration] = {}

    def __repr__(self) -> str:
        return f"App({self.name!r})"

    def __iter__(self) -> Iterator[Declaration]:
        """Everything declared, in order."""
        return iter(tuple(self._declared.values()))

    def __getitem__(self, name: str) -> Declaration:
        return self._declared[name]

    @property
    def queries(self) -> tuple[Query, ...]:
        """Views, derived streams and alerts, in order."""
        return tuple(one for one in self if isinstance(one, Query))

    def stream(
        self,
        name: str,
        schema: str,
        *,
        event_time: str | None = None,
        lateness: str = "0 seconds",
        idle_after: str = "30 seconds",
        max_future: str = "1 hour",
        clock: DeviceClock | None = None,
        start: str = "earliest",
        raw: bool = False,
        capture: Outbox | None = None,
    ) -> Stream:
        """Declare a topic of JSON events. ``schema`` is Spark's: ``"order_id string, amount double, at timestamp"``.

        ``event_time`` names the timestamp column that says when an event happened; rows up to ``lateness`` behind the
        newest still count. ``clock`` corrects the times of devices. A partition without records for
        ``idle_after`` is not waited for; a row more than ``max_future`` ahead of the broker's clock is a dead letter.
        ``start`` is ``earliest``, ``latest`` or an ISO time; ``raw`` adds key, value, headers, topic, partition,
        offset and timestamp of each record.

        ``capture=hr.outbox(...)``: the events come from an outbox table of a database, whose ``payload`` the schema
        describes; columns ``_id``, ``_type``, ``_aggregate`` and ``_key`` say what else the row said.
        """
        place = caller()
        _ensure_outbox(name, capture, place)
        columns = _columns(name, schema, place)
        times = _event_time(f"stream {name!r}", columns, event_time, (lateness, idle_after, max_future), place)
        _ensure_start(name, start, place)
        if clock is not None:
            if times is None:
                raise wrong(
                    f"stream {name!r} has a clock but no event time.",
                    place,
                    f'say event_time="{clock.occurred}": that column is put right',
                )
            for role in ("occurred", "sent", "received"):
                column = getattr(clock, role)
                if column is not None:
                    _ensure_timestamp(f"stream {name!r}", columns, column, f"clock's {role}", place)
        return self._add(Stream(name, columns, place, times, clock, start, raw, capture), place)

    def table(
        self,
        name: str,
        schema: str | None = None,
        *,
        key: str | Iterable[str] | None = None,
        capture: Source | None = None,
        history: bool = False,
        valid_from: str | None = None,
    ) -> TableDeclaration:
        """Declare a topic of changes by key: a JSON object sets the row of its key, a null value deletes it.

        ``capture`` follows a table of a database: ``hr.Postgres(...)``, ``hr.MariaDB(...)``, ``hr.MySQL(...)`` or
        ``hr.SQLite(...)``. Columns and key are then the database's, if they are not said. ``history`` keeps every
        version of a row in the topic, not only the latest: for ``hr.history``, and for joins as of a time that are
        built anew.

        ``valid_from`` names the timestamp column that says since when a row holds, for joins as of a time; without it,
        or where it is null, that is the time of the record; of a captured table the time of the change in the database.
        """
        place, what = caller(), f"table {name!r}"
        if capture is not None and not isinstance(capture, Source):
            raise wrong(f"{what} is captured from {capture!r}.", place, 'say capture=hr.Postgres(dsn, table="...")')
        if schema is None and capture is None:
            raise wrong(f"{what} has no schema.", place, 'say its columns, like "id long, name string", or capture=')
        columns = () if schema is None else _columns(name, schema, place)
        names = () if key is None and capture is not None else _key(what, key or (), place)
        declared = TableDeclaration(name, columns, names, place, valid_from, capture, history)
        if columns:
            _ensure_table(declared)
        return self._add(declared, place)

    @property
    def captured(self) -> tuple[Captured, ...]:
        """The tables and outboxes that are captured from databases, in order."""
        found = []
        for one in self:
            if isinstance(one, TableDeclaration) and one.capture is not None:
                found.append(Captured(one.name, one.capture, one.key, one.history))
            elif isinstance(one, Stream) and one.capture is not None:
                found.append(Captured(one.name, one.capture.source, (), True, one.capture))
        return tuple(found)

    def learn(self, name: str, columns: tuple[Column, ...], key: tuple[str, ...]) -> None:
        """What the database says of a captured table that was declared without a schema."""
        declared = self._declared[name]
        if not isinstance(declared, TableDeclaration):
            raise HeadraceError(f"{name!r} is no table.")
        known = replace(declared, columns=declared.columns or columns, key=declared.key or key)
        _ensure_table(known)
        self._declared[name] = known

    def view(self, *, key: str | Iterable[str], partitions: int = 1) -> Callable[[Function], Function]:
        """Declare a derived table: the function gets streams as DataFrames and tables as ``hr.Table``, by name.

        ``key`` names the columns of the result that tell its rows apart. The view is the compacted topic ``APP.NAME``,
        with so many ``partitions``.

        ```python
        @app.view(key="customer_id")
        def spent(orders):
            return orders.groupBy("customer_id").agg(F.sum("amount").alias("total"))
        ```
        """

        def declare(function: Function) -> Function:
            place = of_function(function)
            names = _key(f"view {function.__name__!r}", key, place)
            return self._query(function, Kind.VIEW, key=names, partitions=partitions)

        return declare

    def view_sql(self, name: str, *, key: str | Iterable[str], sql: str, partitions: int = 1) -> Query:
        """Declare a view in SQL. Streams are read by name; the changes of a table or view as ``NAME_changes``.

        ``app.view_sql("spent", key="id", sql="SELECT id, sum(amount) AS total FROM orders GROUP BY id")``.
        """
        place = caller()
        names = _key(f"view {name!r}", key, place)
        reads = names_read(sql)
        for read in reads:
            self._ensure_readable(name, f"view {name!r}", read.removesuffix(CHANGES), place)
            declared = self._declared[read.removesuffix(CHANGES)]
            if not read.endswith(CHANGES) and not _is_stream(declared):
                raise wrong(
                    f"view {name!r} reads {read!r} as if it were a stream, but it is a table.",
                    place,
                    f"its changes are rows of {read + CHANGES!r}, with a column _deleted",
                )
        found = tuple(dict.fromkeys(read.removesuffix(CHANGES) for read in reads))
        if not found:
            raise wrong(f"view {name!r} reads no stream.", place, f"declared are: {self._names()}")
        return self._add(Query(self.name, name, Kind.VIEW, found, place, names, sql=sql, partitions=partitions), place)

    def derive(
        self,
        *,
        key: str | Iterable[str] = (),
        event_time: str | None = None,
        lateness: str = "0 seconds",
        partitions: int = 1,
    ) -> Callable[[Function], Function]:
        """Declare a derived stream: the rows of the function's result, appended to a topic of the function's name.

        ``event_time`` names the column of the result that its readers take as event time, ``lateness`` how late it may
        be there. ``key`` names the columns whose values are the records' keys.
        """

        def declare(function: Function) -> Function:
            what, place = f"derived stream {function.__name__!r}", of_function(function)
            names = _key(what, key, place) if key else ()
            times = None
            if event_time is not None:
                times = EventTime(event_time, _length(what, "lateness", lateness, place))
            return self._query(function, Kind.DERIVE, key=names, partitions=partitions, event_time=times)

        return declare

    def alert(self, *, to: Channel) -> Callable[[Function], Function]:
        """Declare an alert: each row of the function's result is sent, at least once and in order.

        ``to`` is ``hr.Webhook(url)``, ``hr.Email(...)`` or ``hr.LogLine()``.
        """

        def declare(function: Function) -> Function:
            if not isinstance(to, Channel):
                raise wrong(
                    f"alert {function.__name__!r} has no channel.",
                    of_function(function),
                    "say to=hr.Webhook(url), to=hr.Email(...) or to=hr.LogLine()",
                )
            return self._query(function, Kind.ALERT, to=to)

        return declare

    def _query(self, function: Function, kind: Kind, **more: Any) -> Function:
        place, name = of_function(function), function.__name__
        what = f"{kind} {name!r}"
        reads = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                raise wrong(f"{what} takes *{parameter.name}.", place, "name each stream and table that it reads")
            self._ensure_readable(name, what, parameter.name, place)
            reads.append(parameter.name)
        if not reads:
            raise wrong(f"{what} reads nothing.", place, f"name what it reads as arguments: {self._names()}")
        self._add(Query(self.name, name, kind, tuple(reads), place, function=function, **more), place)
        return function

    def _ensure_readable(self, name: str, what: str, read: str, place: Place) -> None:
        if read == name:
            raise wrong(f"{what} reads itself.", place, "give the view another name than what it reads")
        if read not in self._declared:
            close = get_close_matches(read, self._declared, n=1)
            meant = f"did you mean {close[0]!r}? " if close else ""
            raise wrong(
                f"{what} reads {read!r}, which is not declared above it.",
                place,
                f"{meant}declared are: {self._names()}",
            )
        found = self._declared[read]
        if isinstance(found, Query) and found.kind is Kind.ALERT:
            raise wrong(f"{what} reads {found}.", place, "an alert cannot be read; derive a stream and alert on that")

    def _names(self) -> str:
        readable = (one.name for one in self if not (isinstance(one, Query) and one.kind is Kind.ALERT))
        return ", ".join(readable) or "nothing yet"

    def _add(self, declared: D, place: Place) -> D:
        _ensure_name(declared.name, "declaration", place)
        if isinstance(declared, Query) and declared.kind is Kind.VIEW and declared.name.startswith("headrace_"):
            raise wrong(
                f"{declared.name!r} cannot be the name of a view.",
                place,
                "names that begin with headrace_ are those of Headrace's own tables beside views: give it another",
            )
        other = self._declared.get(declared.name)
        if other is not None:
            raise wrong(
                f"there are two declarations of the name {declared.name!r}.",
                place,
                f"rename one of them; the first is in {other.place}",
            )
        self._declared[declared.name] = declared
        return declared


def _ensure_outbox(name: str, capture: Outbox | None, place: Place) -> None:
    if capture is not None and not isinstance(capture, Outbox):
        raise wrong(
            f"stream {name!r} is captured from {capture!r}.",
            place,
            "a stream comes from an outbox: say capture=hr.outbox(hr.Postgres(...)); or declare a table",
        )


def _ensure_table(declared: TableDeclaration) -> None:
    """Raise unless key and valid_from are columns."""
    what, place = f"table {declared.name!r}", declared.place
    for column in _key(what, declared.key, place):
        _ensure_column(what, declared.columns, column, "key", place)
    if declared.valid_from is not None:
        _ensure_timestamp(what, declared.columns, declared.valid_from, "valid_from", place)


def _is_stream(declared: Declaration) -> bool:
    return isinstance(declared, Stream) or (isinstance(declared, Query) and declared.kind is Kind.DERIVE)


def _ensure_name(name: str, what: str, place: Place) -> str:
    if not _NAME.fullmatch(name):
        raise wrong(
            f"{name!r} cannot be the name of {'an' if what[0] in 'aeiou' else 'a'} {what}.",
            place,
            "a name begins with a letter and has up to 100 letters, digits, hyphens and underscores",
        )
    return name


def _columns(name: str, schema: str, place: Place) -> tuple[Column, ...]:
    try:
        return parse_schema(schema)
    except BadSchema as bad:
        raise wrong(
            f"the schema of {name!r} cannot be read: {bad}.", place, 'write it like "order_id string, amount double"'
        ) from None


def _event_time(
    what: str, columns: tuple[Column, ...], column: str | None, lengths: tuple[str, str, str], place: Place
) -> EventTime | None:
    lateness, idle_after, max_future = (
        _length(what, label, text, place)
        for label, text in zip(("lateness", "idle_after", "max_future"), lengths, strict=True)
    )
    if column is None:
        if lateness:
            raise wrong(f"{what} has a lateness but no event time.", place, "say event_time= with a timestamp column")
        return None
    _ensure_timestamp(what, columns, column, "event time", place)
    return EventTime(column, lateness, idle_after, max_future)


def _ensure_timestamp(what: str, columns: tuple[Column, ...], name: str, role: str, place: Place) -> None:
    column = _ensure_column(what, columns, name, role, place)
    if column.type not in _TIMES:
        raise wrong(f"the {role} of {what}, {name!r}, is {column.type}.", place, f'declare it as "{name} timestamp"')


def _ensure_start(name: str, start: str, place: Place) -> None:
    if start in ("earliest", "latest"):
        return
    try:
        moment_ms(start)
    except ValueError:
        raise wrong(
            f"stream {name!r} cannot start at {start!r}.",
            place,
            "say earliest, latest, or a time like 2026-01-31T12:00Z",
        ) from None


def _ensure_column(what: str, columns: tuple[Column, ...], name: str, role: str, place: Place) -> Column:
    for column in columns:
        if column.name == name:
            return column
    known = [column.name for column in columns]
    close = get_close_matches(name, known, n=1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    raise wrong(
        f"the {role} of {what}, {name!r}, is not a column.", place, f"{meant}its columns are: {', '.join(known)}"
    )


def _key(what: str, key: str | Iterable[str], place: Place) -> tuple[str, ...]:
    names = (key,) if isinstance(key, str) else tuple(key)
    if not names:
        raise wrong(f"{what} has no key.", place, "say key=[...] with the columns that tell its rows apart")
    if len(set(names)) < len(names):
        raise wrong(f"{what} has a column twice in its key.", place, "name each column once")
    return names


def _length(what: str, label: str, text: str, place: Place) -> int:
    try:
        return milliseconds(text)
    except ValueError as bad:
        raise InvalidDeclaration(
            f"{label} of {what} is not a length of time: {bad}.", detail=str(place), hint='write it like "10 minutes"'
        ) from None
