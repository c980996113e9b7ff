"""From declarations to Spark: each query's function is run over empty relations, which gives its columns and finds its
mistakes before any query starts; then over the streams themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.pipelines.aggregates import Aggregate
from headrace.pipelines.app import App, Declaration
from headrace.pipelines.building import Building, building
from headrace.pipelines.declarations import EventTime, Kind, Query, Stream, TableDeclaration
from headrace.pipelines.places import Place, wrong
from headrace.pipelines.schema import Column, schema_text
from headrace.pipelines.sessions import split
from headrace.pipelines.sink import DELETED, FINAL
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.shape import output_type
from headrace.pipelines.sql import CHANGES
from headrace.pipelines.state.frames import WATERMARK
from headrace.pipelines.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Input", "Planned", "Result", "built", "empty", "planned", "sources", "with_event_time"]

_WINDOWS = ("spark.timeWindow", "spark.sessionWindow")


@dataclass(frozen=True, slots=True)
class Input:
    """A thing that a query reads, as far as its reader is concerned."""

    name: str
    topic: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    event_time: EventTime | None = None
    declared: Declaration | None = None
    versions: bool = False
    """Whether changes come with the time since when they hold, and an id."""

    @property
    def is_table(self) -> bool:
        """Whether its records are changes by key."""
        return bool(self.key) and not isinstance(self.declared, Stream)

    @property
    def form(self) -> str:
        """How its records are written: see ``SourceOptions``."""
        if isinstance(self.declared, TableDeclaration) and self.declared.capture is not None:
            return "debezium"
        return "outbox" if isinstance(self.declared, Stream) and self.declared.capture is not None else "plain"

    @property
    def schema(self) -> str:
        """Its columns as Spark reads them."""
        return schema_text(self.columns)

    @property
    def read_as(self) -> str:
        """What a query's fingerprint has of it."""
        return f"{self.topic} {self.schema}{'' if self.form == 'plain' else ' ' + self.form}"


@dataclass(frozen=True, slots=True)
class Result:
    """What a query's function gave."""

    spark: SparkSession
    frame: DataFrame
    windows: tuple[str, ...]
    """The columns that say when a row's window ends."""
    net: bool = False
    """Whether it is the net changes of a table."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A query whose result is known."""

    query: Query
    columns: tuple[Column, ...]
    """What is written, the final flag too."""
    output_mode: str
    window_end: str | None
    deletes: bool
    sessions: bool = False
    """Whether it has session windows whose partial results are shown."""
    net: bool = False
    """Whether its rows are the net changes of a table (``changelog``)."""
    remarks: tuple[str, ...] = ()
    """What the user is told of it when the app starts."""

    @property
    def written(self) -> tuple[str, ...]:
        """The names of the columns that the result itself has."""
        return tuple(column.name for column in self.columns[: -1 if self.window_end is not None else None])


def sources(app: App, found: Mapping[str, Planned], topics: Mapping[str, str]) -> dict[str, Input]:
    """What can be read: streams, tables, and the queries planned so far, on the topics of their present generation."""
    inputs: dict[str, Input] = {}
    for one in app:
        if isinstance(one, Stream):
            inputs[one.name] = Input(one.name, one.topic, one.columns, (), one.event_time, one)
        elif not isinstance(one, Query):
            if not one.columns:
                raise HeadraceError(f"the columns of table {one.name!r} are not known yet: its database was not asked.")
            inputs[one.name] = Input(one.name, one.topic, one.columns, one.key, None, one)
        elif one.name in found and one.kind is not Kind.ALERT:
            key = one.key if one.kind is Kind.VIEW else ()
            topic = topics.get(one.name, one.topic)
            inputs[one.name] = Input(one.name, topic, found[one.name].columns, key, one.event_time, one)
    return inputs


def planned(spark: SparkSession, app: App) -> dict[str, Planned]:
    """Every query of the app, in order; the first mistake is an error that says where it is."""
    found: dict[str, Planned] = {}
    for query in app.queries:
        inputs = sources(app, found, {})
        known = Building(query.id)
        plan = _planned(query, built(spark, query, inputs, lambda one: empty(spark, one), known))
        plan = replace(plan, remarks=tuple(known.remarks))
        if not plan.sessions:
            _ensure_streams(spark, plan, inputs)
        found[query.name] = plan
    return found


def _ensure_streams(spark: SparkSession, plan: Planned, inputs: Mapping[str, Input]) -> None:
    """Raise if this is nothing that Spark can do with streams, which it says only of streams."""
    from pyspark.errors import AnalysisException

    frame = built(spark, plan.query, inputs, lambda one: empty(spark, one, endless=True)).frame
    classes = spark._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    mode = getattr(classes.streaming.OutputMode, plan.output_mode.capitalize())()
    try:
        checker = classes.catalyst.analysis.UnsupportedOperationChecker
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
    except AnalysisException as error:
        sentence = f"{plan.query} cannot be done with streams: {_first_line(error)}"
        hint = "aggregate by windows of event time, or do it in two steps: another view or derived stream in between"
        raise wrong(sentence, plan.query.place, hint) from error


def built(
    spark: SparkSession,
    query: Query,
    inputs: Mapping[str, Input],
    read: Callable[[Input], DataFrame],
    known: Building | None = None,
) -> Result:
    """The query's result, with windows as two columns each. ``known`` is what operators are to know of the run."""
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    times = tuple(one.event_time.column for name in query.reads if (one := inputs[name]).event_time is not None)
    try:
        with building(replace(known or Building(query.id), event_times=times)):
            found = _result(spark, query, [inputs[name] for name in query.reads], read)
            if isinstance(found, Table):
                return Result(spark, _changes(query, found), (), found.net)
        return _flattened(spark, found)
    except HeadraceError:
        raise
    except Exception as error:
        if (given := _given_to_spark(error)) is not None:
            raise wrong(f"{query} gives {given} to Spark.", _place(error, query), _instead_of(given)) from error
        if isinstance(error, AnalysisException | ParseException):
            raise wrong(f"{query} does not work: {_first_line(error)}", _place(error, query), _remedy(error)) from error
        if isinstance(error, PySparkException) or type(error).__module__.startswith("py4j"):
            raise  # Spark's own trouble, no mistake of the user's
        raise wrong(
            f"{query} raised {type(error).__name__}: {error}", _place(error, query), "see the line that it names"
        ) from error


def _result(
    spark: SparkSession, query: Query, inputs: list[Input], read: Callable[[Input], DataFrame]
) -> DataFrame | Table:
    from pyspark.sql import DataFrame

    if query.sql is not None:
        for one in inputs:
            read(one).createOrReplaceTempView(f"`{one.name}{CHANGES if one.is_table else ''}`")
        return spark.sql(query.sql)
    if query.function is None:
        raise HeadraceError(f"{query} has neither a function nor SQL.")
    arguments = [_table(one, read) if one.is_table else read(one) for one in inputs]
    found = query.function(*arguments)
    if not isinstance(found, DataFrame | Table):
        raise wrong(f"{query} returns {type(found).__name__}.", query.place, "return a Spark DataFrame or a table")
    return found


def _changes(query: Query, table: Table) -> DataFrame:
    if query.kind is Kind.VIEW and set(query.key) != set(table.key):
        raise wrong(
            f"{query} has the key {', '.join(query.key)}, but the rows of its result are told apart by "
            f"{', '.join(table.key)}.",
            query.place,
            f"say key={list(table.key)}",
        )
    return table.changes


def _table(one: Input, read: Callable[[Input], DataFrame]) -> Table:
    history = isinstance(one.declared, TableDeclaration) and one.declared.history
    return Table(one.name, one.key, lambda: read(one), lambda: read(replace(one, versions=True)), history=history)


def empty(spark: SparkSession, one: Input, *, endless: bool = False) -> DataFrame:
    """What a query reads, without a row; as a stream if it is to be endless."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    raw = isinstance(one.declared, Stream) and one.declared.raw
    kind = "changes" if one.is_table else "events"
    options = SourceOptions("", one.topic, "", one.schema, raw=raw, kind=kind, versions=one.versions, form=one.form)
    declared = StructType.fromDDL(one.schema)
    if not isinstance(declared, StructType):
        raise HeadraceError(f"{one.schema!r} is no schema.")
    kept = output_type(options, declared)
    if not endless:
        return with_event_time(spark.createDataFrame([], kept), one)
    nulls = (F.lit(None).cast(field.dataType).alias(field.name) for field in kept.fields)
    frame = spark.readStream.format("rate").load().select(*nulls)
    if one.event_time is not None:
        frame = frame.withWatermark(one.event_time.column, f"{one.event_time.lateness_ms} milliseconds")
    return frame


def with_event_time(frame: DataFrame, one: Input) -> DataFrame:
    """A relation that does not stream, its event time marked as Spark marks it of a stream."""
    from pyspark.sql import functions as F

    if one.event_time is None:
        return frame
    name = one.event_time.column
    return frame.withColumn(name, F.col(f"`{name}`").alias(name, metadata={WATERMARK: 0}))


def _flattened(spark: SparkSession, frame: DataFrame) -> Result:
    """A window named NAME becomes NAME (its start) and NAME_end."""
    from pyspark.sql import functions as F

    columns, windows = [], []
    for field in frame.schema.fields:
        if any(field.metadata.get(kind) for kind in _WINDOWS):
            columns.append(F.col(f"`{field.name}`.start").alias(field.name))
            columns.append(F.col(f"`{field.name}`.end").alias(f"{field.name}_end"))
            windows.append(f"{field.name}_end")
        else:
            columns.append(F.col(f"`{field.name}`"))
    return Result(spark, frame.select(*columns) if windows else frame, tuple(windows))


def _planned(query: Query, result: Result) -> Planned:
    found = [Column(field.name, field.dataType.simpleString()) for field in result.frame.schema.fields]
    names = [column.name for column in found]
    _ensure_names(query, names)
    _ensure_event_time(query, found)
    session = "session_window" in result.frame._jdf.queryExecution().analyzed().toString()
    deletes = query.kind is Kind.VIEW and DELETED in names
    partial = session and query.kind is Kind.VIEW and not deletes and split(result.spark, result.frame) is not None
    flagged = bool(result.windows) and query.kind is Kind.VIEW and not deletes
    columns = [column for column in found if not (deletes and column.name == DELETED)]
    if flagged:
        columns.append(Column(FINAL, "boolean"))
        if FINAL in names:
            raise wrong(f"{query} has a column {FINAL!r}.", query.place, "that name is the window's flag; rename yours")
    mode = "update" if query.kind is Kind.VIEW and not session else "append"
    window_end = result.windows[0] if flagged else None
    return Planned(query, tuple(columns), mode, window_end, deletes or partial, partial, result.net)


def _ensure_names(query: Query, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise wrong(f"{query} has two columns {name!r}.", query.place, "give one of them another name (.alias)")
    for name in query.key:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            meant = f"did you mean {close[0]!r}? " if close else ""
            hint = f"{meant}its columns are: {', '.join(names)}"
            raise wrong(f"the key of {query}, {name!r}, is not a column of its result.", query.place, hint)


def _ensure_event_time(query: Query, columns: list[Column]) -> None:
    if query.event_time is None:
        return
    kinds = {column.name: column.type for column in columns}
    if kinds.get(query.event_time.column) != "timestamp":
        raise wrong(
            f"the event time of {query}, {query.event_time.column!r}, is not a timestamp column of its result.",
            query.place,
            f"its columns are: {', '.join(f'{name} {kind}' for name, kind in kinds.items())}",
        )


def _place(error: BaseException, query: Query) -> Place:
    """The last line of the user's own file that the error came through."""
    place, trace = query.place, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == query.place.file:
            place = Place(query.place.file, trace.tb_lineno)
        trace = trace.tb_next
    return place


def _given_to_spark(error: BaseException) -> Aggregate | None:
    """An aggregate of ours that the user's function took for one of Spark's."""
    if isinstance(error, AttributeError) and isinstance(error.obj, Aggregate):
        return error.obj
    found, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(("pyspark.", "py4j.")):
            given = (one for value in trace.tb_frame.f_locals.values() for one in _values(value))
            found = found or next((one for one in given if isinstance(one, Aggregate)), None)
        else:
            found = None  # what Spark was given before it called this is not what is wrong
        trace = trace.tb_next
    return found


def _values(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else [value]


def _instead_of(given: Aggregate) -> str:
    window = 'by=[hr.tumbling("1 minute").start.alias("minute")]'
    of = '"*"' if given.column is None else repr(given.column)
    spark = f"F.approx_count_distinct({of}), an estimate" if given.kind == "count_distinct" else f"F.{given.kind}({of})"
    return f"say hr.aggregate(..., {window}, n={given}) for groups, windows too; or Spark's {spark}"


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].split(" SQLSTATE:")[0]


def _remedy(error: BaseException) -> str:
    text = str(error)
    if "UNRESOLVED_COLUMN" in text:
        return "use one of the columns that it suggests, or declare the column in the stream's schema"
    if "TABLE_OR_VIEW_NOT_FOUND" in text:
        return "declare what the SQL reads above the view"
    return "Spark refused the query as it stands; change it as the message says"
