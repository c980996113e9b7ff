"""How many rows were captured: the records with a value in the topics of tables, each counted once as it comes.

Where a topic ends does not tell it, for markers of transactions and tombstones take offsets too. What was counted is
noted in the catalog, with the offsets up to which: ``capture-rows/APP/NAME``, ``{"rows": 7, "offsets": {"0": 12}}``. So
a count goes on where it was, whatever compaction has taken from the topic.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from headrace.capture.declarations import Captured
from headrace.feed.catalog import Catalog, read_catalog
from headrace.feed.cluster import Cluster

__all__ = ["CapturedRows"]

KIND = "capture-rows"
_AT_ONCE = 5_000


@dataclass
class _Count:
    rows: int = 0
    offsets: dict[int, int] = field(default_factory=dict)
    """Up to where, of each partition."""
    noted: int = -1

    @property
    def entry(self) -> dict[str, Any]:
        return {"rows": self.rows, "offsets": {str(index): offset for index, offset in self.offsets.items()}}


class CapturedRows:
    """Counts the rows of an app's tables. ``look`` is for one thread, ``of`` for any."""

    def __init__(self, cluster: Cluster, app: str, tables: Sequence[Captured]) -> None:
        self._cluster, self._app = cluster, app
        self._topics = {table.topic: table.name for table in tables}
        self._counts = {table.name: _Count() for table in tables}
        self._consumer: Consumer | None = None

    def of(self, name: str) -> int:
        """How many rows of a table were captured, as far as they were counted."""
        return self._counts[name].rows

    def end(self, name: str) -> int:
        """Where the table's topic ends, as far as it was counted."""
        return sum(self._counts[name].offsets.values())

    def look(self, seconds: float) -> None:
        """Count what has come, for so long at most. The topics must be there."""
        consumer = self._consumer = self._consumer or self._begin()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            messages = consumer.consume(_AT_ONCE, 0.0)
            if not messages:
                return
            self._count(messages)

    def finish(self, patience_s: float) -> None:
        """Count all that is there now; raises if the log is away."""
        consumer = self._consumer = self._consumer or self._begin()
        ends = [(place, consumer.get_watermark_offsets(place, timeout=1.0)[1]) for place in consumer.assignment()]
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and any(self._place(place) < end for place, end in ends):
            self._count(consumer.consume(_AT_ONCE, 0.1))

    def note(self, catalog: Catalog) -> None:
        """Note what has changed."""
        for name, count in self._counts.items():
            if count.noted != count.rows:
                catalog.put(f"{KIND}/{self._app}/{name}", count.entry)
                count.noted = count.rows

    def close(self) -> None:
        """Stop following."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _begin(self) -> Consumer:
        noted, places = read_catalog(self._cluster, KIND), []
        for topic, name in self._topics.items():
            bounds, found = self._cluster.bounds(topic), noted.get(f"{self._app}/{name}")
            count = _Count()
            if found is not None and all(_is_within(bounds, index, at) for index, at in found["offsets"].items()):
                offsets = {int(index): at for index, at in found["offsets"].items()}
                count = _Count(found["rows"], offsets, noted=found["rows"])
            self._counts[name] = count
            places += [
                TopicPartition(topic, index, max(start, count.offsets.get(index, 0)))
                for index, (start, _) in bounds.items()
            ]
        consumer = self._cluster.consumer(
            fetch_wait_max_ms=500, queued_max_messages_kbytes=4 << 10, fetch_message_max_bytes=1 << 20
        )
        consumer.assign(places)
        return consumer

    def _count(self, messages: Iterable[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                continue
            count = self._counts[self._topics[str(message.topic())]]
            index, offset = int(message.partition() or 0), int(message.offset() or 0)
            if error is None:
                count.rows += message.value() is not None
                offset += 1
            count.offsets[index] = offset

    def _place(self, place: TopicPartition) -> int:
        return self._counts[self._topics[place.topic]].offsets.get(place.partition, 0)


def _is_within(bounds: dict[int, tuple[int, int]], index: str, offset: int) -> bool:
    """Whether the topic has got as far: it is not another one of the same name."""
    return int(index) in bounds and offset <= bounds[int(index)][1]
