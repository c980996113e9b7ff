"""Changes that a kill has torn: the part of one change that was not written is written before the task runs again.

Debezium makes several records of one change of a row: a deletion and its tombstone; of a new primary key the old key's
deletion, its tombstone, and the new key's row. All carry one position. If the records of one change fall into two
transactions and the worker is killed between them, the position says that the change was processed, and the rest never
comes: seen with 3.7.0.Final, a row with a new key was lost. Our task for PostgreSQL writes them together (``java/``);
Debezium's for MariaDB and MySQL does not. So before a worker starts, and before a task that failed or was stopped goes
on, the end of each topic is looked at: a deletion gets the tombstone that it lacks, and a row whose new key did not
come is read from the table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message, Producer

from headrace.capture.reading import committed
from headrace.errors import ServerAway
from headrace.feed.cluster import Cluster

__all__ = ["LastRecord", "Torn", "mend", "torn_end"]

NEW_KEY = "__debezium.newkey"
_LOOK_BACK = 64


@dataclass(frozen=True, slots=True)
class LastRecord:
    """A record at the end of a topic."""

    key: bytes
    value: bytes | None
    new_key: str | None = None
    """The header that the deletion of a changed key carries."""

    @property
    def is_deletion(self) -> bool:
        """Whether it is a deletion (and not its tombstone)."""
        return self.value is not None and json.loads(self.value).get("op") == "d"


@dataclass(frozen=True, slots=True)
class Torn:
    """What is missing after the last record."""

    tombstone: bytes | None = None
    """The key that has a deletion without its tombstone."""
    row: dict[str, Any] | None = None
    """The new key whose row did not come."""


def torn_end(records: Sequence[LastRecord]) -> Torn:
    """What the last records of a topic lack."""
    if not records:
        return Torn()
    last = records[-1]
    if last.is_deletion:
        return Torn(last.key, _new_key(last))
    if last.value is None and len(records) > 1 and records[-2].is_deletion and records[-2].key == last.key:
        return Torn(None, _new_key(records[-2]))
    return Torn()


def mend(cluster: Cluster, topic: str) -> dict[str, Any] | None:
    """Write the tombstone that a topic's end lacks. Returns the new key whose row is to be read, if there is one."""
    missing = None
    for partition, (start, end) in cluster.bounds(topic).items():
        if start >= end:
            continue
        torn = torn_end(_last_records(cluster, topic, partition, start, end))
        if torn.tombstone is not None:
            producer = Producer(cluster.config(enable_idempotence=True))
            producer.produce(topic, key=torn.tombstone, value=None, partition=partition)
            if producer.flush(30.0):
                raise ServerAway(f"topic {topic!r} could not be written to.")
        missing = torn.row or missing
    return missing


def _new_key(deletion: LastRecord) -> dict[str, Any] | None:
    if deletion.new_key is None:
        return None
    found = json.loads(deletion.new_key)
    return dict(found) if isinstance(found, dict) else None


def _last_records(cluster: Cluster, topic: str, partition: int, start: int, end: int) -> list[LastRecord]:
    """The last two records at least, if there are so many: behind them may be many that were never committed."""
    back = _LOOK_BACK
    while True:
        since = max(start, end - back)
        found = [_record(message) for message in committed(cluster, topic, partition, since, end)]
        if len(found) >= 2 or since == start:
            return found
        back *= 16


def _record(message: Message) -> LastRecord:
    headers: dict[str, Any] = dict(message.headers() or [])
    new = headers.get(NEW_KEY)
    text = new.decode(errors="replace") if isinstance(new, bytes) else None
    return LastRecord(_bytes(message.key()) or b"", _bytes(message.value()), text)


def _bytes(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
