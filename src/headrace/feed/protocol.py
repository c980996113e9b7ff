"""Reading over the Kafka protocol: from Headrace or Apache Kafka, from any machine.

librdkafka leaves aborted transactions out. It says nothing of offsets that hold no data record, so a range ends with a
record at or after its end, or with the news that the partition's end was reached.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace import _kernel
from headrace.errors import OffsetOutOfRange, ServerAway
from headrace.feed.cluster import Cluster, deleted, raised

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ProtocolFeed"]

_AT_ONCE = 20_000
_POLL_S = 0.5
_PATIENCE_S = 30.0


class ProtocolFeed:
    """A feed that fetches."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.cluster_id = cluster.id
        self.partitions = cluster.partitions
        self.bounds = cluster.bounds
        self.offset_at = cluster.offset_at
        self.topic_id = cluster.topic_id
        self._consumer: Consumer | None = None

    def read(
        self, topic: str, partition: int, start: int, end: int, *, max_bytes: int = 8 << 20, whole: bool = False
    ) -> Iterator[pyarrow.RecordBatch]:
        """The committed data records of a range."""
        if start >= end:
            return
        if self._consumer is None:
            self._consumer = self.cluster.consumer(auto_offset_reset="error")
        consumer = self._consumer
        try:
            consumer.assign([TopicPartition(topic, partition, start)])
            yield from self._batches(consumer, TopicPartition(topic, partition, start), end, max_bytes, whole)
        except KafkaException as error:
            raise raised(error.args[0], f"topic {topic!r} could not be read", self.cluster.bootstrap) from None
        finally:
            if self._consumer is consumer:
                consumer.unassign()

    def close(self) -> None:
        """Close the consumer."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
        self.cluster.close()

    def _batches(
        self, consumer: Consumer, at: TopicPartition, end: int, max_bytes: int, whole: bool
    ) -> Iterator[pyarrow.RecordBatch]:
        topic, begun = at.topic, at.offset > 0
        waiting: list[Message] = []
        size, deadline = 0, time.monotonic() + _PATIENCE_S
        while True:
            got = consumer.consume(1, _POLL_S)
            got += consumer.consume(_AT_ONCE, 0)  # with a timeout it would wait for all of them
            try:
                records, done = self._sorted(got, topic, end)
            except OffsetOutOfRange:
                if (whole and begun) or time.monotonic() > deadline:
                    raise
                consumer.assign([TopicPartition(topic, at.partition, OFFSET_BEGINNING)])
                continue
            begun = begun or bool(records)
            if got:
                deadline = time.monotonic() + _PATIENCE_S
            waiting += records
            size += sum(map(len, records))
            if waiting and (done or size >= max_bytes):
                yield _to_arrow(waiting)
                waiting, size = [], 0
            if done:
                return
            if time.monotonic() > deadline:
                raise ServerAway(f"topic {topic!r} gave no records for {_PATIENCE_S:.0f} s, and no end either.")

    def _sorted(self, got: Sequence[Message], topic: str, end: int) -> tuple[list[Message], bool]:
        """The records of the range, and whether it is at its end."""
        records: list[Message] = []
        for message in got:
            error, offset = message.error(), message.offset() or 0
            if error is None:
                if offset >= end:
                    return records, True
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                if offset >= end:
                    return records, True
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise deleted(topic, message.partition() or 0)
            elif not error.retriable() and error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                raise raised(error, f"topic {topic!r} could not be read", self.cluster.bootstrap)
        return records, bool(records) and records[-1].offset() == end - 1


def _to_arrow(messages: Sequence[Message]) -> pyarrow.RecordBatch:
    import pyarrow

    schema = pyarrow.record_batch(_kernel.records_to_arrow(b"")).schema
    columns = (
        [message.offset() for message in messages],
        [message.timestamp()[1] for message in messages],
        [message.key() for message in messages],
        [message.value() for message in messages],
    )
    arrays = [pyarrow.array(column, type=schema.types[at]) for at, column in enumerate(columns)]
    headers = _headers([message.headers() for message in messages], schema.types[-1])
    return pyarrow.record_batch([*arrays, headers], schema=schema)


def _headers(rows: Sequence[Any], kind: pyarrow.ListType) -> pyarrow.Array:
    """``rows``: of each record a list of pairs, or None."""
    import pyarrow

    ends, names, values = [0], [], []
    for row in rows:
        for name, value in row or ():
            names.append(name if isinstance(name, str) else name.decode(errors="replace"))
            values.append(value)
        ends.append(len(names))
    fields = [kind.value_type.field(0), kind.value_type.field(1)]
    columns = [pyarrow.array(names, fields[0].type), pyarrow.array(values, fields[1].type)]
    entries = pyarrow.StructArray.from_arrays(columns, fields=fields)
    return pyarrow.ListArray.from_arrays(pyarrow.array(ends, pyarrow.int32()), entries, type=kind)
