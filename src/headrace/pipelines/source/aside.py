"""Records that Spark does not get, and reports, written to their topics before a task ends.

Every record is keyed by where it came from, on compacted topics: a task that runs again writes the same ones again.

::

    <stream>.dead   key TOPIC/PARTITION/OFFSET
    <stream>.late   key QUERY/TOPIC/PARTITION/OFFSET
    headers         headrace.reason, .detail, .topic, .partition, .offset, .timestamp (ms), .query, .key (if there is
                    one); of late ones also .event_time and .watermark (ISO)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer

from headrace.errors import ServerAway
from headrace.feed.cluster import Cluster, raised
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.planning import Range
from headrace.pipelines.source.reports import TIMES, Report, report_key
from headrace.pipelines.source.sorting import Aside, Bounds

Headers = list[tuple[str, str | bytes | None]]

__all__ = ["AsideWriter", "dead_topic", "late_topic"]

_FLUSH_S = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def dead_topic(topic: str) -> str:
    """Where rows go that cannot be read."""
    return f"{topic}.dead"


def late_topic(topic: str) -> str:
    """Where rows go that came too late."""
    return f"{topic}.late"


class AsideWriter:
    """A producer whose records are all on disk once ``flush`` is back."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer = Producer(
            cluster.config(acks="all", enable_idempotence=True, linger_ms=1, queue_buffering_max_messages=200_000)
        )
        self._error: KafkaError | None = None

    def dead(self, options: SourceOptions, partition: int, records: pa.RecordBatch, rows: Iterable[Aside]) -> None:
        """Write rows of a batch of records to the dead topic."""
        for aside in rows:
            offset = records.column("offset")[aside.row].as_py()
            key = f"{options.topic}/{partition}/{offset}"
            self._write(
                dead_topic(options.topic), key, records, aside, self._headers(options, partition, records, aside)
            )

    def late(
        self, options: SourceOptions, partition: int, records: pa.RecordBatch, rows: Iterable[Aside], bounds: Bounds
    ) -> None:
        """Write rows of a batch of records to the late topic."""
        for aside in rows:
            offset = records.column("offset")[aside.row].as_py()
            key = f"{options.query}/{options.topic}/{partition}/{offset}"
            headers = self._headers(options, partition, records, aside)
            headers.append(("headrace.event_time", _iso(aside.event_time_us)))
            headers.append(("headrace.watermark", _iso(bounds.late_us)))
            self._write(late_topic(options.topic), key, records, aside, headers)

    def report(self, options: SourceOptions, read: Range, report: Report) -> None:
        """Say what came of a range."""
        self.put(TIMES, report_key(options.query, options.topic, read), report.to_json())

    def put(self, topic: str, key: str, value: bytes | None, headers: Headers | None = None) -> None:
        """Write a record."""
        while True:
            try:
                self._producer.produce(topic, value, key.encode(), headers=headers or [], on_delivery=self._delivered)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)

    def flush(self) -> None:
        """Return once everything is on disk."""
        left = self._producer.flush(_FLUSH_S)
        error, self._error = self._error, None
        if error is not None:
            raise raised(error, "dead and late rows could not be written", self._cluster.bootstrap)
        if left:
            raise ServerAway(f"{left} dead and late rows could not be written in {_FLUSH_S:.0f} s.")

    def close(self) -> None:
        """Write what is left, if that is quick."""
        with contextlib.suppress(Exception):
            self._producer.flush(5)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self._error = self._error or error

    def _write(self, topic: str, key: str, records: pa.RecordBatch, aside: Aside, headers: Headers) -> None:
        self.put(topic, key, records.column("value")[aside.row].as_py(), headers)

    def _headers(self, options: SourceOptions, partition: int, records: pa.RecordBatch, aside: Aside) -> Headers:
        timestamp = records.column("timestamp")[aside.row].cast(pa.int64()).as_py()
        found = {
            "reason": aside.reason,
            "detail": aside.detail,
            "topic": options.topic,
            "partition": str(partition),
            "offset": str(records.column("offset")[aside.row].as_py()),
            "timestamp": str(timestamp),
            "query": options.query,
        }
        headers: Headers = [(f"headrace.{name}", value.encode()) for name, value in found.items()]
        key = records.column("key")[aside.row].as_py()
        return headers if key is None else [*headers, ("headrace.key", key)]


def _iso(time_us: int | None) -> bytes:
    if time_us is None:
        return b""
    moment = (_EPOCH + timedelta(microseconds=time_us)).replace(tzinfo=None)
    return f"{moment.isoformat(timespec='microseconds')}Z".encode()
