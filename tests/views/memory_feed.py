"""A feed over records in memory: what the materialiser sees of a log, without a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace import _kernel
from headrace.errors import ServerAway, UnknownTopic

SCHEMA = pa.record_batch(_kernel.records_to_arrow(b"")).schema

Record = tuple[int, int, bytes | None, bytes | None]
"""offset, timestamp, key, value"""


def records(rows: list[Record]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    arrays = [pa.array(column, type=SCHEMA.types[at]) for at, column in enumerate(columns)]
    return pa.record_batch([*arrays, pa.nulls(len(rows), SCHEMA.types[4])], schema=SCHEMA)


@dataclass
class Partition:
    start: int = 0
    end: int = 0
    records: list[Record] = field(default_factory=list)


class MemoryFeed:
    """Topics as lists; ``rows_at_once`` is how many records a batch has, ``log`` the cluster's id."""

    def __init__(self, rows_at_once: int = 3, log: str = "memory") -> None:
        self._log = log
        self.topics: dict[str, list[Partition]] = {}
        self.away = False
        self.rows_at_once = rows_at_once
        self._now = 1_700_000_000_000
        self._made, self._ids = 0, dict[str, str]()

    def create(self, topic: str, partitions: int = 1) -> None:
        self.topics[topic] = [Partition() for _ in range(partitions)]
        self._made += 1
        self._ids[topic] = f"{self._log}-{self._made}"

    def delete(self, topic: str) -> None:
        del self.topics[topic]

    def append(self, topic: str, key: Any, value: Any, partition: int = 0) -> int:
        """Append a record (bytes as they are, None, or anything else as JSON); its offset."""
        if topic not in self.topics:
            self.create(topic)
        kept = self.topics[topic][partition]
        self._now += 1
        kept.records.append((kept.end, self._now, as_json(key), as_json(value)))
        kept.end += 1
        return kept.end - 1

    def skip(self, topic: str, partition: int = 0) -> None:
        """An offset without a data record, as a transaction's marker takes one."""
        self.topics[topic][partition].end += 1

    def compact(self, topic: str) -> None:
        for kept in self.topics[topic]:
            last = {key: offset for offset, _, key, _ in kept.records}
            kept.records = [record for record in kept.records if last[record[2]] == record[0]]

    def cluster_id(self) -> str | None:
        return self._log

    def partitions(self, topic: str) -> list[int]:
        return list(self.bounds(topic))

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        if self.away:
            raise ServerAway("nobody answers")
        if topic not in self.topics:
            raise UnknownTopic(f"there is no topic {topic}")
        return {index: (kept.start, kept.end) for index, kept in enumerate(self.topics[topic])}

    def topic_id(self, topic: str) -> str:
        return self._ids[topic]

    def offset_at(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        return {
            index: next((offset for offset, moment, _, _ in kept.records if moment >= timestamp_ms), kept.end)
            for index, kept in enumerate(self.topics[topic])
        }

    def read(
        self, topic: str, partition: int, start: int, end: int, *, max_bytes: int = 0, whole: bool = False
    ) -> Iterator[pa.RecordBatch]:
        wanted = [record for record in self.topics[topic][partition].records if start <= record[0] < end]
        for at in range(0, len(wanted), self.rows_at_once):
            yield records(wanted[at : at + self.rows_at_once])

    def close(self) -> None:
        pass


def as_json(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return json.dumps(value, separators=(",", ":")).encode()


def view_entry(
    app: str, name: str, key: list[str], columns: Mapping[str, str], *, topic: str | None = None, fingerprint: str = "1"
) -> dict[str, Any]:
    """A view as the catalog has it."""
    return {
        "app": app,
        "name": name,
        "topic": topic or f"{app}.{name}",
        "key": key,
        "columns": [{"name": column, "type": kind} for column, kind in columns.items()],
        "fingerprint": fingerprint,
        "built_at": "2026-01-01T00:00:00.000000Z",
    }
