"""Produce: append each partition's batch where it lies in the frame, and answer when it is as durable as was asked.

acks=0 is not answered (an error closes the connection, as there is no other way to tell), acks=1 is answered at once,
acks=all once the disk has it. The next request of the connection is handled meanwhile, unless the topic has overflowed
and its producers are slowed down (``overflow.py``), or the client is over its quota (``quotas.py``).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from headrace.broker import error_codes
from headrace.broker.codecs.produce import (
    FLEXIBLE_SINCE,
    NO_RECORDS,
    PartitionResult,
    ProduceRequest,
    decode_request,
    encode_response,
)
from headrace.broker.overflow import Brake
from headrace.broker.primitives import Cursor
from headrace.broker.refused import Refused, code_of
from headrace.broker.transactions.coordinator import Producer
from headrace.errors import CorruptMessage, HeadraceError, InvalidRequest, RecordTooLarge, StorageError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.connection import Connection, Slot
    from headrace.log.partition import PartitionLog
    from headrace.log.store import Topic

__all__ = ["API_KEY", "FLEXIBLE_SINCE", "VERSIONS", "serve", "serve_orphan"]

API_KEY: Final = 0
VERSIONS: Final = (3, 13)
ADVERTISED_MIN: Final = 0
"""Old librdkafka sends uncompressed to a broker that does not offer version 0."""

_NO_ACKS, _ALL_ACKS = 0, -1
_ZSTD_SINCE: Final = 7
_ZSTD: Final = 4
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_ABORTABLE_SINCE: Final = 11
_IMPLICIT_SINCE: Final = 12
_PRODUCER: Final = struct.Struct(">qh").unpack_from
_PRODUCER_START, _PRODUCER_END = 43, 53
_ATTRIBUTES_LOW: Final = 22
_MAGIC: Final = 16
_BATCH_LENGTH: Final = struct.Struct(">i").unpack_from

Results = list[tuple[str | bytes, list[PartitionResult]]]
Waits = list[tuple["PartitionLog", int, list[PartitionResult], int]]
"""Partition, offset up to which it must be on disk, where its result is: list and position."""


def serve(connection: Connection, version: int, correlation_id: int, frame: memoryview, pos: int) -> None:
    """Handle one request."""
    request = decode_request(version, frame, pos)
    acks = request.acks
    broker = connection.server.broker
    blocking: list[Topic] = []
    results, waits, failed = _append_all(broker, request, version, frame, blocking)
    brake = broker.overflow.brake(connection, blocking) if blocking else None
    if broker.quotas.limits_producers and (wait_ms := broker.quotas.produced(connection, frame)):
        brake = (brake or Brake(0, on=False)).at_least(wait_ms)
    if acks == _NO_ACKS:
        if failed:
            connection.close("a Produce request with acks=0 failed, and there is no answer to say so")
    elif waits or brake is not None:
        _AnswerWhenDurable(connection, version, correlation_id, results, waits, brake).start(broker)
    else:
        connection.answer(encode_response(version, correlation_id, results))


def serve_orphan(connection: Connection, frame: memoryview) -> None:
    """Handle a request whose client is gone, if it wants no answer."""
    version = int.from_bytes(frame[2:4], "big", signed=True)
    if not VERSIONS[0] <= version <= VERSIONS[1]:
        return
    try:
        cursor = Cursor(frame, 10 + max(0, int.from_bytes(frame[8:10], "big", signed=True)))
        if version >= FLEXIBLE_SINCE:
            cursor.skip_tags()
        request = decode_request(version, frame, cursor.pos)
    except InvalidRequest:
        return
    if request.acks == _NO_ACKS:
        _append_all(connection.server.broker, request, version, frame)


def _append_all(
    broker: Broker, request: ProduceRequest, version: int, frame: memoryview, blocking: list[Topic] | None = None
) -> tuple[Results, Waits, bool]:
    """Append what can be; topics whose producers may have to be slowed down are added to ``blocking``."""
    acks = request.acks
    refused = error_codes.NONE if acks in (-1, 0, 1) else error_codes.INVALID_REQUIRED_ACKS
    results: Results = []
    waits: Waits = []
    failed = False
    for key, partitions in request.topics:
        topic, code = broker.find_topic(key)
        if topic is not None and topic.internal:
            code = error_codes.INVALID_TOPIC
        if topic is not None and blocking is not None and topic.config.blocks:
            blocking.append(topic)
        code = refused or code
        done: list[PartitionResult] = []
        for index, start, end in partitions:
            if topic is None or code or not 0 <= index < len(topic.partitions):
                failed = True
                done.append(PartitionResult(index, code or error_codes.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1))
                continue
            partition = topic.partitions[index]
            state_offset = 0
            try:
                if (
                    start == NO_RECORDS
                    or frame[start + _ATTRIBUTES_LOW : start + _ATTRIBUTES_LOW + 1].tobytes() > b"\x03"
                ):
                    _ensure_acceptable(frame, start, end, version)
                    state_offset = _admit(broker, request, partition, frame[start:end], version)
                info = partition.append(frame[start:end], acks_all=acks == _ALL_ACKS)
            except HeadraceError as error:
                failed = True
                done.append(_refusal(index, error, partition, frame[start:end] if start >= 0 else frame[:0]))
                continue
            if acks == _ALL_ACKS:
                if state_offset:
                    state = broker.transactions.state_partition()
                    if state.synced_offset < state_offset:
                        waits.append((state, state_offset, done, len(done)))
                waits.append((partition, info.last_offset + 1, done, len(done)))
            done.append(PartitionResult(index, 0, info.base_offset, info.log_append_time_ms, info.log_start))
        results.append((key, done))
    return results, waits, failed


def _ensure_acceptable(frame: memoryview, start: int, end: int, version: int) -> None:
    """Refuse what depends on the request and not on the log."""
    if start == NO_RECORDS:
        raise Refused(error_codes.INVALID_RECORD, "a partition without a record batch")
    if end - start <= _ATTRIBUTES_LOW or frame[start + _MAGIC] != 2:
        return
    attributes = frame[start + _ATTRIBUTES_LOW]
    if attributes & 7 == _ZSTD and version < _ZSTD_SINCE:
        raise Refused(error_codes.UNSUPPORTED_COMPRESSION_TYPE, f"zstd in a Produce request of version {version}")


def _admit(broker: Broker, request: ProduceRequest, partition: PartitionLog, batch: memoryview, version: int) -> int:
    """A batch of a transaction must be of the open one; the offset that the state topic must be durable to, or 0."""
    if len(batch) < _PRODUCER_END or batch[_MAGIC] != 2:
        return 0
    if batch[_ATTRIBUTES_LOW] & (_TRANSACTIONAL | _CONTROL) != _TRANSACTIONAL:
        return 0
    if request.transactional_id is None:
        raise Refused(error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a batch of a transaction without an id")
    producer = Producer(request.transactional_id, *_PRODUCER(batch, _PRODUCER_START))
    place = (partition.topic, partition.index)
    try:
        return broker.transactions.admit(producer, place, implicit=version >= _IMPLICIT_SINCE)
    except Refused as refused:
        raise Refused(_code_for(refused.code, version), refused.message) from None


def _code_for(code: int, version: int) -> int:
    """What a producer is told instead of what only the coordinator's clients know."""
    if code == error_codes.PRODUCER_FENCED:
        return error_codes.INVALID_PRODUCER_EPOCH
    if code == error_codes.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return error_codes.INVALID_TXN_STATE
    if code == error_codes.CONCURRENT_TRANSACTIONS and version < _IMPLICIT_SINCE:
        return error_codes.NOT_ENOUGH_REPLICAS
    return code


def _refusal(index: int, error: HeadraceError, partition: PartitionLog, batch: memoryview) -> PartitionResult:
    """The result for a batch that was not appended. Kafka tells the log start where it looked into the batch."""
    code, log_start = code_of(error), -1
    if isinstance(error, CorruptMessage):
        code = error_codes.INVALID_RECORD if _has_no_batch(batch) else code
    elif not isinstance(error, Refused | RecordTooLarge | StorageError) and not _has_more(batch):
        log_start = partition.log_start
    return PartitionResult(index, code, -1, -1, log_start, error.message)


def _has_no_batch(batch: memoryview) -> bool:
    """Whether Kafka would find no whole batch of the present format here, which it calls an invalid record."""
    size = len(batch)
    if size < 12:
        return True
    (length,) = _BATCH_LENGTH(batch, 8)
    if length < 14:
        return False
    if size < 17:
        return True
    magic = batch[_MAGIC]
    return magic in (0, 1) or (magic == 2 and size < length + 12)


def _has_more(batch: memoryview) -> bool:
    """Whether something follows the first batch."""
    return len(batch) >= 12 and len(batch) > int(_BATCH_LENGTH(batch, 8)[0]) + 12


class _AnswerWhenDurable:
    """Waits for all partitions of one request."""

    __slots__ = ("_brake", "_connection", "_correlation_id", "_left", "_results", "_slot", "_version", "_waits")

    def __init__(
        self,
        connection: Connection,
        version: int,
        correlation_id: int,
        results: Results,
        waits: Waits,
        brake: Brake | None,
    ) -> None:
        self._connection = connection
        self._version = version
        self._correlation_id = correlation_id
        self._results = results
        self._waits = waits
        self._brake = brake
        self._left = len(waits)
        self._slot: Slot = connection.park()

    def start(self, broker: Broker) -> None:
        """Ask for the syncs."""
        when_durable = broker.commit.when_durable
        if self._left == 0:
            self._finish()
        elif self._left == 1:
            partition, next_offset, _, _ = self._waits[0]
            when_durable(partition, next_offset, self._first_is_done)
        else:
            for position, (partition, next_offset, _, _) in enumerate(self._waits):
                when_durable(partition, next_offset, lambda error, at=position: self._is_done(at, error))  # type: ignore[misc]

    def _first_is_done(self, error: HeadraceError | None) -> None:
        self._is_done(0, error)

    def _is_done(self, position: int, error: HeadraceError | None) -> None:
        if error is not None:
            _, _, results, at = self._waits[position]
            results[at] = PartitionResult(results[at].partition, error.kafka_code, -1, -1, -1, error.message)
        self._left -= 1
        if self._left == 0:
            self._finish()

    def _finish(self) -> None:
        if self._brake is None:
            self._answer()
        else:
            self._brake.when_off(self._answer)

    def _answer(self) -> None:
        throttle_ms = 0 if self._brake is None else self._brake.throttle_ms
        response = encode_response(self._version, self._correlation_id, self._results, throttle_ms)
        self._connection.complete(self._slot, response)
