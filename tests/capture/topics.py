"""What a captured topic says: read as any consumer would, committed records only."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from headrace.feed.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Change:
    """One record."""

    key: dict[str, Any]
    value: dict[str, Any] | None
    headers: dict[str, bytes]
    offset: int

    @property
    def op(self) -> str:
        return "tombstone" if self.value is None else str(self.value["op"])

    @property
    def row(self) -> dict[str, Any] | None:
        return None if self.value is None else self.value["after"]

    @property
    def source(self) -> dict[str, Any]:
        return {} if self.value is None else dict(self.value["source"])


class Reader:
    """Follows a topic from its start; ``changes`` grows."""

    def __init__(self, bootstrap: str, topic: str, client: Mapping[str, str] | None = None) -> None:
        self.changes: list[Change] = []
        self.is_raw = False
        self._topic = topic
        self._rows: dict[str, dict[str, Any]] = {}
        self._folded = 0
        self._consumer: Consumer = Cluster(bootstrap, client or {}).consumer()
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def read(self, seconds: float = 0.2) -> None:
        for message in self._consumer.consume(10_000, seconds):
            if message.error() is None:
                value = message.value()
                headers = {name: bytes(text or b"") for name, text in message.headers() or []}
                self.changes.append(
                    Change(
                        json.loads(message.key() or b"{}"),
                        None if value is None else json.loads(value),
                        headers,
                        message.offset() or 0,
                    )
                )

    def seek(self, offset: int) -> None:
        """Go on from an offset."""
        self._consumer.assign([TopicPartition(self._topic, 0, offset)])

    def raw(self, seconds: float) -> list[Message]:
        """Records as they are, for topics that are not changes."""
        self.is_raw = True
        return [message for message in self._consumer.consume(10_000, seconds) if message.error() is None]

    def events(self, count: int, patience: float = 180.0) -> list[tuple[bytes, bytes, dict[str, bytes | None]]]:
        """So many records of an outbox's topic at least: key, value, headers."""
        found: list[tuple[bytes, bytes, dict[str, bytes | None]]] = []

        def enough() -> bool:
            for one in self.raw(0.2):
                headers: dict[str, bytes | None] = dict(one.headers() or [])
                found.append((bytes(one.key() or b""), bytes(one.value() or b""), headers))
            return len(found) >= count

        self.until(enough, patience)
        return found

    def until(self, enough: Callable[[], bool], patience: float = 180.0) -> None:
        deadline = time.monotonic() + patience
        while not enough():
            assert time.monotonic() < deadline, f"{len(self.changes)} changes came, the last: {self.changes[-1:]}"
            if not self.is_raw:
                self.read()

    def table(self) -> dict[str, dict[str, Any]]:
        """The latest row of each key: what the topic says the table is."""
        for change in self.changes[self._folded :]:
            key = json.dumps(change.key, sort_keys=True)
            if change.row is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = change.row
        self._folded = len(self.changes)
        return self._rows

    def close(self) -> None:
        self._consumer.close()
