"""How one query is started: its sink takes over, its checkpoint is put right, its plan is built on the streams."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace import tracing
from headrace.errors import HeadraceError
from headrace.exposition import Histogram
from headrace.feed.cluster import Cluster
from headrace.feed.presence import this_machine
from headrace.pipelines.building import Building, building
from headrace.pipelines.checkpoint import Checkpoint, source_offsets
from headrace.pipelines.declarations import Kind, Stream, TableDeclaration
from headrace.pipelines.generations import CheckpointLost, Generation
from headrace.pipelines.plan import Input, Planned, built, empty, with_event_time
from headrace.pipelines.pruning import unneeded_columns
from headrace.pipelines.sessions import split
from headrace.pipelines.settings import RunSettings
from headrace.pipelines.sink import Sink, Target
from headrace.pipelines.source.shape import TRACE
from headrace.pipelines.state.damage import state_lost
from headrace.pipelines.traces import BatchTraces, carried

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["QueryJob", "ensure_checkpoint"]

SOURCES_PATIENCE_S = 15.0


class QueryJob:
    """One generation of one query, ready to be started, any number of times."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Planned,
        generation: Generation,
        inputs: Mapping[str, Input],
        settings: RunSettings,
        checkpoint: Checkpoint,
        *,
        building: threading.Lock,
        crash: Callable[[str], None] | None = None,
    ) -> None:
        self.plan, self.generation, self.inputs, self.checkpoint = plan, generation, inputs, checkpoint
        self.app, self.name, self.kind = plan.query.app, plan.query.name, plan.query.kind
        self.bootstrap = settings.bootstrap
        self.cluster = Cluster(settings.bootstrap, settings.client)
        self._spark, self._settings, self._building = spark, settings, building
        self._failure: BaseException | None = None
        self._batch_seconds = Histogram()
        self._columns: dict[str, tuple[str, ...]] = {}
        self._without: frozenset[tuple[int, str]] | None = None
        self._traces = BatchTraces(settings) if tracing.is_on() else None
        self.sink = Sink(self.cluster, _target(plan, generation), checkpoint, crash=crash, traces=self._traces)

    @property
    def start_over(self) -> bool:
        """Whether the checkpoint is lost and a time to go on from was given."""
        return self._settings.start_from is not None and not self.checkpoint.is_there

    def start(self) -> StreamingQuery:
        """Start it where it was. Fences a run before this one."""
        self._failure, self.sink = None, self.sink.again()
        mark = self.sink.claim()
        if self.start_over:
            self.sink.adopt(-1, "")
        elif mark is not None and mark.entry:
            ensure_checkpoint(self.plan, self.checkpoint)
            self.sink.adopt(*self.checkpoint.restore(mark.batch, mark.entry))
        self.sink.ready()
        with self._building:
            self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.generation.id)
            frame, finish = self._built()
            writer = frame.writeStream.queryName(self.generation.id).outputMode(self.plan.output_mode)
            query = (
                writer.foreachBatch(partial(self._write, self.sink, finish))
                .option("checkpointLocation", self.checkpoint.where)
                .trigger(processingTime=f"{self._settings.interval_ms} milliseconds")
                .start()
            )
            _wait_for_sources(query)
            return query

    def _built(self) -> tuple[DataFrame, Callable[[DataFrame], DataFrame] | None]:
        """The stream, and what is still to be done with each of its batches."""
        known = self._known()
        frame = built(self._spark, self.plan.query, self.inputs, self._stream, known).frame
        with building(known):
            parts = split(self._spark, frame) if self.plan.sessions else None
        if parts is None:
            return carried(self._spark, frame) if self._carries_traces else frame, None
        return parts.frame, lambda batch: parts.finish(batch, self.plan.query.key)

    @property
    def _carries_traces(self) -> bool:
        """Whether rows may come with the traceparents of their records."""
        return self._traces is not None and self.plan.window_end is None and not self.plan.net

    def _known(self) -> Building:
        client = tuple(self._settings.client.items())
        buckets = self.checkpoint.buckets(self._settings.buckets)
        seed = self.checkpoint.folder if self.checkpoint.has_seed else None
        return Building(self.generation.id, (), self.bootstrap, client, buckets, seed, self._unneeded())

    def _unneeded(self) -> frozenset[tuple[int, str]]:
        """Columns of its operators' results that nothing looks at; of sessions, which are taken apart, not known."""
        if self._without is None:

            def build(known: Building) -> DataFrame:
                return built(self._spark, self.plan.query, self.inputs, partial(empty, self._spark), known).frame

            self._without = frozenset() if self.plan.sessions else unneeded_columns(build)
        return self._without

    def failure(self) -> BaseException | None:
        """What the sink raised; that the state cannot be read, if that is why."""
        return self._failure

    def counts(self) -> dict[str, Any]:
        """Rows in, late and dead since the beginning; how long batches took since the start."""
        from headrace.pipelines.source import counts

        found = counts(self.bootstrap, self.generation.id, self._settings.client)
        rows = {"rows_in": found.rows_in, "late": found.late, "dead": found.dead + self.sink.dead_rows}
        return {**rows, "batch_seconds": self._batch_seconds.to_json()}

    def about(self) -> dict[str, Any]:
        """The topics that it reads and writes, and where it is declared."""
        reads = sorted({one.topic for one in self.inputs.values()})
        return {"reads": reads, "topic": self.generation.topic, "place": str(self.plan.query.place)}

    def done(self) -> None:
        """Let go of the producer, and of a client that may know a broker that is no more."""
        self.sink.close()
        self.cluster.close()
        if self._traces is not None:
            self._traces.close()

    def has_read(self, ends: Mapping[str, Mapping[int, int]]) -> bool:
        """Whether what lies before these ends of its topics was written."""
        entry = self.checkpoint.last_entry()
        mark = self.sink.mark
        if entry is None or mark is None or mark.entry != entry:
            return all(not any(partitions.values()) for partitions in ends.values())
        return _reached(entry, ends)

    def _write(self, sink: Sink, finish: Callable[[DataFrame], DataFrame] | None, frame: DataFrame, batch: int) -> None:
        """Each start has its own sink, so a batch of a query that would not stop goes nowhere."""
        began = time.monotonic()
        try:
            if finish is None:
                sink.write(frame, batch)
            else:
                kept = frame.persist()  # its rows are looked at more than once, and must be made once
                try:
                    sink.write(finish(kept), batch)
                finally:
                    kept.unpersist()
            self._batch_seconds.observe(time.monotonic() - began)
        except BaseException as error:
            if sink is self.sink:
                self._failure = state_lost(error, self.generation.id, self.checkpoint.where) or error
            raise

    def _stream(self, one: Input) -> DataFrame:
        from headrace.pipelines.source import SourceOptions, read_stream, with_all_columns

        declared = one.declared
        times = one.event_time
        stream = declared if isinstance(declared, Stream) else None
        traced = self._carries_traces and not one.is_table and one.form == "plain"
        start = self._settings.start_from if self.start_over and self._settings.start_from else None
        frame = read_stream(
            self._spark,
            SourceOptions(
                bootstrap=self.bootstrap,
                topic=one.topic,
                query=self.generation.id,
                schema=one.schema,
                data=str(self._settings.log_data) if self._settings.log_data else None,
                machine=this_machine(),
                columns=self._needed(one),
                raw=bool(stream and stream.raw),
                event_time=times.column if times else None,
                lateness_ms=times.lateness_ms if times else 0,
                idle_after_ms=times.idle_after_ms if times else 30_000,
                max_future_ms=times.max_future_ms if times else 3_600_000,
                device_clock=stream.clock if stream else None,
                start=start or (stream.start if stream else "earliest"),
                position=self.checkpoint.start(one.topic),
                max_records_per_trigger=None if one.versions else self._settings.max_records,
                client=tuple(self._settings.client.items()),
                kind="changes" if one.is_table else "events",
                versions=one.versions,
                valid_from=declared.valid_from if isinstance(declared, TableDeclaration) else None,
                form=one.form,
                history=isinstance(declared, TableDeclaration) and declared.history,
                traced=traced,
            ),
        )
        if traced:
            frame = frame.drop(TRACE)
        return with_all_columns(frame, one.schema)

    def _needed(self, one: Input) -> tuple[str, ...] | None:
        """The columns of an input that the query looks at; None for all."""
        from headrace.pipelines.source import needed_columns

        if one.is_table or one.form == "outbox" or (isinstance(one.declared, Stream) and one.declared.raw):
            return None
        if one.name not in self._columns:

            def build(frame: DataFrame) -> DataFrame:
                read = {one.name: with_event_time(frame, one)}
                return built(
                    self._spark,
                    self.plan.query,
                    self.inputs,
                    lambda other: read.get(other.name, empty(self._spark, other)),
                    Building(self.generation.id, unneeded=self._unneeded()),
                ).frame

            self._columns[one.name] = needed_columns(self._spark, build, one.schema)
        return self._columns[one.name]


def _wait_for_sources(query: StreamingQuery) -> None:
    """Spark gives the Python process of a source 10 s to come up: one after the other, they do."""
    deadline = time.monotonic() + SOURCES_PATIENCE_S
    while query.isActive and query.status["message"] == "Initializing sources" and time.monotonic() < deadline:
        time.sleep(0.02)


def ensure_checkpoint(plan: Planned, checkpoint: Checkpoint) -> None:
    """Raise unless the checkpoint of a query that has written is there."""
    if not checkpoint.is_there:
        raise CheckpointLost(
            f"the checkpoint of {plan.query} is gone, though it has written: {checkpoint.where}.",
            hint="start over with `headrace run --rebuild`, which builds it anew from the log; or go on from a time "
            "with `headrace run --from TIME`, which begins with empty state there",
        )


def _target(plan: Planned, generation: Generation) -> Target:
    return Target(
        query=generation.id,
        topic=generation.topic,
        key=plan.query.key,
        columns=plan.written,
        generation=generation.number,
        fingerprint=generation.fingerprint,
        upsert=plan.query.kind is Kind.VIEW,
        window_end=plan.window_end,
        deletes=plan.deletes,
        net=plan.net,
    )


def _reached(entry: str, ends: Mapping[str, Mapping[int, int]]) -> bool:
    """Whether the sources of an entry, which say their topic, have come to these ends."""
    from headrace.pipelines.source import positions

    reached: dict[str, dict[int, int]] = {}
    for offset in source_offsets(entry):
        if offset is None:
            raise HeadraceError("a source without an offset")
        topic, found = positions(offset)
        known = reached.setdefault(topic, {})
        for partition, position in found.items():
            known[partition] = min(position, known.get(partition, position))
    return all(
        reached.get(topic, {}).get(partition, 0) >= end
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )
