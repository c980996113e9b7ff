"""Reading a partition as whole batches of committed records, from Headrace or Apache Kafka alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace import _kernel
from headrace.errors import CorruptRange, ServerAway
from headrace.move.batches import Fetched, committed
from headrace.move.connection import Brokers, Connection, check

if TYPE_CHECKING:
    import pyarrow

__all__ = ["fetches", "rows"]

_FETCH, _VERSION = 1, 12
_READ_COMMITTED = 1
_MAX_BYTES = 4 << 20
_PATIENCE_S = 30.0


def fetches(brokers: Brokers, topic: str, partition: int, start: int, end: int) -> Iterator[tuple[Fetched, int]]:
    """All batches from ``start`` to before ``end``, and after each fetch the offset that it reached.

    The next fetch is under way while one is looked at."""
    if start >= end:
        return
    place = f"{topic}[{partition}]"
    connection, _ = brokers.leader(topic, partition)
    _ask(connection, topic, partition, start)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        fetched = _fetched(connection.receive(), place)
        headers, _, bad = _kernel.scan(fetched.data)
        if bad is not None and bad.kind != "truncated":
            raise CorruptRange(f"{place} cannot be read at offset {start}: {bad}.")
        if headers:
            last = headers[-1]
            start, deadline = max(start, last[2] + last[5] + 1), time.monotonic() + _PATIENCE_S
        elif time.monotonic() > deadline:
            raise ServerAway(f"{place} gave nothing for {_PATIENCE_S:.0f} s at offset {start}, and ends at {end}.")
        if start < end:
            _ask(connection, topic, partition, start)
        if headers:
            yield fetched, min(start, end)
        if start >= end:
            return


def rows(brokers: Brokers, topic: str, partition: int, start: int, end: int) -> Iterator[pyarrow.RecordBatch]:
    """The committed records of a range as Arrow: offset, timestamp, key, value, headers."""
    import pyarrow

    reached = start
    for fetched, following in fetches(brokers, topic, partition, start, end):
        data = b"".join(batch for _, batch in committed(fetched))
        found = pyarrow.record_batch(_kernel.records_to_arrow(data, reached, end))
        reached = following
        if found.num_rows:
            yield found


def _ask(connection: Connection, topic: str, partition: int, offset: int) -> None:
    wanted = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": _MAX_BYTES,
    }
    request = {
        "replica_id": -1,
        "max_wait_ms": 100,
        "min_bytes": 1,
        "max_bytes": _MAX_BYTES,
        "isolation_level": _READ_COMMITTED,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    connection.send(_FETCH, _VERSION, request)


def _fetched(answer: Any, place: str) -> Fetched:
    check(f"{place} could not be read", answer.error_code)
    [topic] = answer.responses
    [found] = topic.partitions
    check(f"{place} could not be read", found.error_code)
    aborted = [(one.producer_id, one.first_offset) for one in found.aborted_transactions or ()]
    return Fetched(memoryview(found.records or b""), aborted)
