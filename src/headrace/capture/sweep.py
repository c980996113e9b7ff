"""After an initial snapshot that was not the first attempt: keys that are gone are deleted from the topic.

A snapshot that is broken off starts over and repeats rows, which does no harm: a key has its latest row. But a row that
one attempt has written and that was deleted in the database before the next would stay for ever, as nobody tells of its
deletion. All rows of an attempt carry the same position. So what is live in the topic and was last written before the
last attempt began is gone, and gets the deletion and tombstone that it lacks. The connector must not write meanwhile.
"""

from __future__ import annotations

import json
from typing import Any

from headrace.capture.deletions import delete_keys
from headrace.capture.reading import keyed
from headrace.feed.cluster import Cluster

__all__ = ["LiveKeys", "sweep"]


class LiveKeys:
    """What is live in a topic, and where its last attempt of a snapshot began: a fold over the records."""

    def __init__(self) -> None:
        self._written: dict[bytes, tuple[int, bool]] = {}
        self._attempt: object = None
        self._began: int | None = None

    def read(self, offset: int, key: bytes, value: bytes | None) -> None:
        """Take in a record."""
        if value is None:
            self._written.pop(key, None)
            return
        read = b'"op":"r"' in value and self._is_read(offset, value)
        self._written[key] = (offset, read)

    def gone(self, *, nothing_read: bool = False) -> list[bytes]:
        """The live keys that the last attempt did not see; ``nothing_read``: it found no row at all."""
        if nothing_read:
            return [key for key, (_, read) in self._written.items() if read]
        began = self._began
        return [] if began is None else [key for key, (offset, _) in self._written.items() if offset < began]

    def _is_read(self, offset: int, value: bytes) -> bool:
        record = json.loads(value)
        source = record.get("source") or {}
        if record.get("op") != "r" or source.get("snapshot") == "incremental":
            return False
        attempt = [source.get(name) for name in ("lsn", "file", "pos", "gtid")]
        if attempt != self._attempt:
            self._attempt, self._began = attempt, offset
        return True


def sweep(cluster: Cluster, topic: str, about: dict[str, Any], *, nothing_read: bool = False) -> int:
    """Delete the keys of a topic that are gone. Returns how many those were."""
    gone = []
    for partition, (start, end) in cluster.bounds(topic).items():
        if start < end:
            gone += _read(cluster, topic, partition, start, end).gone(nothing_read=nothing_read)
    return delete_keys(cluster, topic, gone, about)


def _read(cluster: Cluster, topic: str, partition: int, start: int, end: int) -> LiveKeys:
    found = LiveKeys()
    for offset, key, value in keyed(cluster, topic, partition, start, end):
        found.read(offset, key, value)
    return found
