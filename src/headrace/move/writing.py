"""Writing a partition of the target so that its offsets are the source's.

Records go through an idempotent producer, a few batches in flight; every answer must name the offset that was meant.
A gap of n offsets is filled, once all before it is written, by a transaction that is aborted: n - 1 empty records and
its marker, or n markers of n transactions when there are few, which no reader at all gets to see. The transaction is
open only while the partition stands in the gap. So whenever we are killed, whoever aborts it, its marker lies in the
gap, and the end of the partition alone says where to go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from headrace.errors import HeadraceError
from headrace.move.batches import Piece, filler, signed
from headrace.move.connection import TRANSACTION, Brokers, Connection, Refused, check

__all__ = ["Gaps", "Misplaced", "PartitionWriter", "log_end"]

_PRODUCE, _PRODUCE_VERSION = 0, 11
_DELETE_RECORDS, _DELETE_VERSION = 21, 2
_INIT_PRODUCER, _INIT_VERSION = 22, 4
_END_OFFSET, _END_OFFSET_VERSION = 23, 4
_ADD_PARTITIONS, _ADD_VERSION = 24, 3
_END_TXN, _END_VERSION = 26, 3
_IN_FLIGHT = 4
_MARKERS = 4
"""Gaps of so many offsets at most are made of markers alone."""
_FILLERS = 100_000
_TRANSACTION_MS = 60_000
_MOVED_AWAY = (15, 16)
_PATIENCE_S = 60.0


class Misplaced(HeadraceError):
    """A record of the target is not where it belongs: somebody else has written to the topic."""


class Gaps:
    """A transactional id whose transactions are all aborted: for one thread."""

    def __init__(self, brokers: Brokers, name: str) -> None:
        self.name = name
        self._brokers = brokers
        self._coordinator: Connection | None = None
        self._producer = (-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}

    def begin(self) -> None:
        """End what an earlier run of this id has left open; its markers are written when this is back."""
        asked = {
            "transactional_id": self.name,
            "transaction_timeout_ms": _TRANSACTION_MS,
            "producer_id": -1,
            "producer_epoch": -1,
        }

        def init() -> Any:
            told = self._asked(_INIT_PRODUCER, _INIT_VERSION, asked)
            check(f"transactional id {self.name!r} could not be used", told.error_code)
            return told

        self._coordinator = None
        told = self._patiently(init)
        self._producer = (told.producer_id, told.producer_epoch)
        self._sequences.clear()

    def fill(self, writer: PartitionWriter, start: int, end: int) -> None:
        """Make the offsets of a partition from where it ends (``start``) to before ``end`` ones that hold nothing."""
        while start < end:
            left = end - start
            empty = 0 if left <= _MARKERS else min(left - 1, _FILLERS)
            self._one(writer, empty)
            start = self._landed(writer, start + empty + 1)

    def _one(self, writer: PartitionWriter, empty: int) -> None:
        topic, partition = writer.topic, writer.partition
        who = {"producer_id": self._producer[0], "producer_epoch": self._producer[1]}
        added: dict[str, Any] = {f"v3_and_below_{name}": value for name, value in who.items()}
        added["v3_and_below_transactional_id"] = self.name
        added["v3_and_below_topics"] = [{"name": topic, "partitions": [partition]}]

        def add() -> None:
            told = self._asked(_ADD_PARTITIONS, _ADD_VERSION, added)
            for found in told.results_by_topic_v3_and_below:
                for one in found.results_by_partition:
                    check(f"a gap of {writer.place} could not be begun", one.partition_error_code)

        def end() -> None:
            asked = {"transactional_id": self.name, **who, "committed": False}
            told = self._asked(_END_TXN, _END_VERSION, asked)
            check(f"a gap of {writer.place} could not be ended", told.error_code)

        self._patiently(add)
        if empty:
            sequence = self._sequences.get((topic, partition), 0)
            batch = signed(filler(empty), self._producer, sequence, transactional=True)
            self._patiently(lambda: writer.put_at_once(batch, self.name))
            self._sequences[topic, partition] = sequence + empty & 0x7FFFFFFF
        self._patiently(end)

    def _landed(self, writer: PartitionWriter, wanted: int) -> int:
        """Wait until the marker is there."""
        deadline = time.monotonic() + _PATIENCE_S
        pause = 0.0002
        while (end := writer.end()) < wanted:
            if time.monotonic() > deadline:
                raise Misplaced(f"{writer.place} stands at {end} and did not come to {wanted}.")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
        if end > wanted:
            raise _misplaced(writer.place, wanted, end)
        return end

    def _patiently(self, ask: Callable[[], Any]) -> Any:
        """Ask until the answer is no passing error."""
        deadline = time.monotonic() + _PATIENCE_S
        pause = 0.001
        while True:
            try:
                return ask()
            except Refused as error:
                if not error.passes or time.monotonic() > deadline:
                    raise
                if error.code in _MOVED_AWAY:
                    self._coordinator = None
            time.sleep(pause)
            pause = min(pause * 2, 0.2)

    def _asked(self, api: int, version: int, request: dict[str, Any]) -> Any:
        if self._coordinator is None:
            self._coordinator = self._brokers.coordinator(TRANSACTION, self.name)
        return self._coordinator.call(api, version, request)


def log_end(brokers: Brokers, topic: str, partition: int) -> int:
    """Where the log of a partition's leader ends, also of what is not on its replicas or not committed yet."""
    connection, epoch = brokers.leader(topic, partition)
    asked = {"partition": partition, "current_leader_epoch": -1, "leader_epoch": epoch}
    request = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [asked]}]}
    told = connection.call(_END_OFFSET, _END_OFFSET_VERSION, request)
    found = told.topics[0].partitions[0]
    check(f"the end of {topic}[{partition}] could not be asked for", found.error_code)
    return max(0, int(found.end_offset))


class PartitionWriter:
    """One partition of the target. Nobody else may write to it meanwhile."""

    def __init__(self, brokers: Brokers, topic: str, partition: int) -> None:
        self.topic, self.partition = topic, partition
        self.place = f"{topic}[{partition}]"
        self._brokers = brokers
        told = brokers.any().call(_INIT_PRODUCER, _INIT_VERSION, {"transactional_id": None})
        check("the target gave no producer id", told.error_code)
        self._producer = (told.producer_id, told.producer_epoch)
        self._sequence = 0
        self._meant: list[int] = []

    def end(self) -> int:
        """Where the leader's log ends."""
        return log_end(self._brokers, self.topic, self.partition)

    def put(self, piece: Piece) -> None:
        """Write a batch that belongs at its base offset; up to a few are not answered yet."""
        batch = signed(piece.data, self._producer, self._sequence)
        self._sequence = self._sequence + piece.records & 0x7FFFFFFF
        self._send(batch, None)
        self._meant.append(piece.base)
        while len(self._meant) >= _IN_FLIGHT:
            self._answered()

    def settle(self) -> None:
        """Wait until everything is written."""
        while self._meant:
            self._answered()

    def put_at_once(self, batch: bytearray, transactional_id: str) -> None:
        """Write a batch of a transaction and wait for it."""
        self._send(batch, transactional_id)
        self._receive()

    def fill_to(self, start: int) -> None:
        """Bring a partition that ends before ``start`` there; what it then holds is to be deleted."""
        end = self.end()
        batch = filler(min(_FILLERS, max(1, start - end)))
        while end < start:
            count = min(_FILLERS, start - end)
            data = batch[:] if count == _FILLERS else filler(count)
            self.put(Piece(end, count, data))
            end += count
        self.settle()

    def delete_before(self, start: int) -> None:
        """Have the partition begin at an offset."""
        connection, _ = self._brokers.leader(self.topic, self.partition)
        partitions = [{"partition_index": self.partition, "offset": start}]
        request = {"topics": [{"name": self.topic, "partitions": partitions}], "timeout_ms": 30_000}
        found = connection.call(_DELETE_RECORDS, _DELETE_VERSION, request).topics[0].partitions[0]
        check(f"what is before offset {start} of {self.place} could not be deleted", found.error_code)

    def _answered(self) -> None:
        meant = self._meant.pop(0)
        found = self._receive()
        if found != meant:
            raise _misplaced(self.place, meant, found)

    def _send(self, batch: bytearray, transactional_id: str | None) -> None:
        connection, _ = self._brokers.leader(self.topic, self.partition)
        data = [{"index": self.partition, "records": batch}]
        request = {
            "transactional_id": transactional_id,
            "acks": -1,
            "timeout_ms": 30_000,
            "topic_data": [{"name": self.topic, "partition_data": data}],
        }
        connection.send(_PRODUCE, _PRODUCE_VERSION, request)

    def _receive(self) -> int:
        connection, _ = self._brokers.leader(self.topic, self.partition)
        found = connection.receive().responses[0].partition_responses[0]
        check(f"records could not be written to {self.place}", found.error_code, found.error_message)
        return int(found.base_offset)


def _misplaced(place: str, meant: int, found: int) -> Misplaced:
    return Misplaced(
        f"what belongs at offset {meant} of {place} came to {found}.",
        detail="something else has written to the topic on the target",
        hint="stop it, delete the topic there, and start the move again: it copies that topic anew",
    )
