"""Fetch: read from partitions, or wait until there is something to read.

A fetch is answered at once if it found at least ``min_bytes``, hit an error, or may not wait. Otherwise it listens to
its partitions and is answered when they have enough, or after ``max_wait_ms`` with what there is; partitions that do
not exist wait along, so that a reader who asks for one does not spin. Partitions are read in turn until ``max_bytes``
is reached; the first one with data gives at least one whole batch, however large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from headrace.broker import error_codes
from headrace.broker.codecs.fetch import (
    FLEXIBLE_SINCE,
    TOPIC_ID_SINCE,
    Buffers,
    FetchRequest,
    PartitionAnswer,
    TopicAnswers,
    decode_request,
    encode_response,
)
from headrace.broker.fetch_sessions import (
    FINAL_EPOCH,
    FULL_EPOCH,
    NO_SESSION,
    FetchSession,
    Followed,
    SessionError,
    follow,
)
from headrace.broker.quotas import client_id_of
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.connection import Connection, Slot
    from headrace.log.partition import PartitionLog

__all__ = ["API_KEY", "FLEXIBLE_SINCE", "VERSIONS", "serve"]

API_KEY: Final = 1
VERSIONS: Final = (4, 18)

_RESPONSE_BYTES: Final = 16 << 20
"""More in one response would cost memory and bring nothing."""
_SCARCE_BYTES: Final = 64 << 10
_ZSTD_SINCE: Final = 10
_EMPTY: Final = b""

Answers = list[tuple[Followed, PartitionAnswer]]


def serve(connection: Connection, version: int, correlation_id: int, frame: memoryview, pos: int) -> None:
    """Handle one request."""
    request = decode_request(version, frame, pos)
    broker = connection.server.broker
    by_id = version >= TOPIC_ID_SINCE
    session: FetchSession | None = None
    try:
        followed: Iterable[Followed]
        if request.session_epoch in (FULL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                broker.sessions.end(request.session_id)
            followed = follow(request.topics)
            if request.session_epoch == FULL_EPOCH and version >= 7:
                session = broker.sessions.create(followed, by_id)
            full = True
        else:
            session = broker.sessions.resume(request, by_id)
            followed = session.followed.values()
            full = False
    except SessionError as error:
        connection.answer(encode_response(version, correlation_id, error.code, NO_SESSION, []))
        return
    client_id = client_id_of(frame) if broker.quotas.limits_consumers else None
    _Fetch(connection, version, correlation_id, request, session, list(followed), full, client_id).start()


class _Fetch:
    """One fetch, from the request to the answer."""

    __slots__ = (
        "_broker",
        "_client_id",
        "_committed",
        "_connection",
        "_correlation_id",
        "_followed",
        "_full",
        "_max_bytes",
        "_max_wait_ms",
        "_may_read",
        "_min_bytes",
        "_missing",
        "_refused",
        "_session",
        "_slot",
        "_timer",
        "_version",
        "_wake_scheduled",
    )

    def __init__(
        self,
        connection: Connection,
        version: int,
        correlation_id: int,
        request: FetchRequest,
        session: FetchSession | None,
        followed: list[Followed],
        full: bool,
        client_id: str | None,
    ) -> None:
        broker = connection.server.broker
        self._client_id = client_id
        self._broker = broker
        self._connection = connection
        self._version = version
        self._correlation_id = correlation_id
        self._session = session
        self._followed = followed
        self._full = full
        self._committed = request.isolation == 1
        self._refused = _refusal(request)
        self._max_bytes = max(0, min(request.max_bytes, broker.fetch_max_bytes, _RESPONSE_BYTES))
        if client_id is not None and (most := broker.quotas.most_at_once(client_id)) is not None:
            self._max_bytes = min(self._max_bytes, most)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._max_wait_ms = request.max_wait_ms
        self._may_read = True
        self._missing = 0
        self._slot: Slot | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wake_scheduled = False

    def start(self) -> None:
        """Answer now, or park."""
        self._resolve()
        self._missing = self._unresolved()
        if self._max_wait_ms <= 0 or self._missing == len(self._followed) or self._has_error():
            self._answer(self._read())
            return
        if self._min_bytes <= 1 or self._has_enough():
            answers = self._read()
            if self._is_enough(answers):
                self._answer(answers)
                return
        self._park()

    # Waiting ---------------------------------------------------------------------------------------------------

    def _park(self) -> None:
        self._slot = self._connection.park()
        self._connection.on_close[self] = self._stop_listening
        for item in self._followed:
            if item.partition is not None:
                item.partition.listeners.add(self._on_change)
        self._timer = self._broker.loop.call_later(self._max_wait_ms / 1000, self._time_is_up)

    def _stop_listening(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for item in self._followed:
            if item.partition is not None:
                item.partition.listeners.discard(self._on_change)

    def _on_change(self, partition: PartitionLog) -> None:
        """A partition moved: look again once all that happens now has happened."""
        if not self._wake_scheduled:
            self._wake_scheduled = True
            self._broker.loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._wake_scheduled = False
        if self._timer is None or self._connection.closed:
            return
        self._resolve()
        if not self._has_error() and not self._has_enough():
            return
        if self._slot is not None and self._connection.is_held_up(self._slot):
            self._connection.when_room(self._look_again)
            return
        answers = self._read()
        if self._is_enough(answers):
            self._finish(answers)

    def _time_is_up(self) -> None:
        if self._slot is not None and self._connection.is_held_up(self._slot):
            self._may_read = False
        self._finish(self._read())

    def _finish(self, answers: Answers) -> None:
        self._stop_listening()
        self._connection.on_close.pop(self, None)
        self._answer(answers)

    def _is_enough(self, answers: Answers) -> bool:
        """Whether what was read need not wait for more."""
        size = sum(len(answer.records) for _, answer in answers)
        if size >= self._min_bytes or self._unresolved() > self._missing:
            return True
        return any(answer.error_code and item.partition is not None for item, answer in answers)

    def _has_error(self) -> bool:
        if self._refused or self._unresolved() > self._missing:
            return True
        return any(map(self._epoch_error, self._followed))

    def _unresolved(self) -> int:
        return sum(item.partition is None for item in self._followed)

    def _has_enough(self) -> bool:
        """Whether there seems to be as much to read as was asked for, or an error to tell."""
        wanted = max(self._min_bytes, 1)
        committed = self._committed
        total = 0
        for item in self._followed:
            partition = item.partition
            if partition is None:
                continue
            limit = partition.last_stable_offset if committed else partition.high_watermark
            if not partition.log_start <= item.offset <= partition.end_offset:
                return True
            if item.offset < limit:
                if wanted == 1:
                    return True
                total += min(partition.available_bytes(item.offset, committed, wanted - total), item.max_bytes)
                if total >= wanted:
                    return True
        return False

    # Reading ---------------------------------------------------------------------------------------------------

    def _resolve(self) -> None:
        broker = self._broker
        for item in self._followed:
            partition = item.partition
            if partition is None or partition.deleted:
                item.resolve(broker)

    def _epoch_error(self, item: Followed) -> int:
        epoch, partition = item.leader_epoch, item.partition
        if epoch == -1 or partition is None or epoch == partition.leader_epoch:
            return error_codes.NONE
        if epoch < partition.leader_epoch:
            return error_codes.FENCED_LEADER_EPOCH
        return error_codes.UNKNOWN_LEADER_EPOCH

    def _read(self) -> Answers:
        left = self._max_bytes
        if self._connection.server.is_full:
            left = min(left, _SCARCE_BYTES)
        min_one = self._may_read
        committed = self._committed
        answers: Answers = []
        for item in self._followed:
            partition = item.partition
            error = self._error(item)
            if partition is None or error:
                answers.append((item, _failed(item.index, error, [] if partition is None else None)))
                continue
            offset = item.offset
            if offset == partition.high_watermark or not self._may_read:
                answers.append((item, _nothing(item.index, partition, committed)))
                continue
            try:
                result = partition.read(offset, max(0, min(item.max_bytes, left)), committed=committed, min_one=min_one)
            except HeadraceError as failure:
                answers.append((item, _failed(item.index, failure.kafka_code, None)))
                continue
            size = len(result.data)
            if size:
                min_one = False
                left = max(0, left - size)
            answers.append(
                (
                    item,
                    PartitionAnswer(
                        item.index,
                        error_codes.NONE,
                        result.high_watermark,
                        result.last_stable_offset,
                        result.log_start,
                        result.aborted if committed else None,
                        result.data,
                    ),
                )
            )
        return answers

    def _error(self, item: Followed) -> int:
        if self._refused:
            return self._refused
        partition = item.partition
        if partition is None:
            return item.error or error_codes.UNKNOWN_TOPIC_OR_PARTITION
        if self._version < _ZSTD_SINCE and partition.config.compression_type == "zstd":
            return error_codes.UNSUPPORTED_COMPRESSION_TYPE
        return self._epoch_error(item)

    # Answering -------------------------------------------------------------------------------------------------

    def _answer(self, answers: Answers) -> None:
        throttle_ms = 0
        if self._client_id is not None:
            size = sum(len(answer.records) for _, answer in answers)
            throttle_ms, gets_them = self._broker.quotas.fetched(self._connection, self._client_id, size)
            if not gets_them:
                self._send(encode_response(self._version, self._correlation_id, 0, self._quiet(), [], throttle_ms))
                return
        session = self._session
        if session is not None:
            answers = self._news(session, answers)
        topics: list[TopicAnswers] = []
        last_key: str | bytes | None = None
        for item, answer in answers:
            if item.partition is not None:
                item.partition.sent_bytes += len(answer.records)
            if item.key != last_key:
                last_key = item.key
                topics.append((last_key, []))
            topics[-1][1].append(answer)
        session_id = NO_SESSION if session is None or session.id not in self._broker.sessions else session.id
        code = self._refused if self._refused == error_codes.UNKNOWN_SERVER_ERROR else error_codes.NONE
        self._send(encode_response(self._version, self._correlation_id, code, session_id, topics, throttle_ms))

    def _quiet(self) -> int:
        """The session of an answer that says nothing of its partitions: one that began with it is forgotten."""
        session = self._session
        if session is None or session.id not in self._broker.sessions:
            return NO_SESSION
        if self._full:
            self._broker.sessions.end(session.id)
            return NO_SESSION
        return session.id

    def _send(self, response: Buffers) -> None:
        if self._slot is None:
            self._connection.answer(response)
        else:
            self._connection.complete(self._slot, response)

    def _news(self, session: FetchSession, answers: Answers) -> Answers:
        """What an incremental answer has to say: data, errors, and watermarks that moved."""
        news = []
        for item, answer in answers:
            if (
                self._full
                or len(answer.records)
                or answer.error_code
                or answer.high_watermark != item.told_high_watermark
                or answer.log_start_offset != item.told_log_start
            ):
                news.append((item, answer))
                item.told_high_watermark = -1 if answer.error_code else answer.high_watermark
                item.told_log_start = answer.log_start_offset
                if len(answer.records):
                    session.to_the_back(item)
        return news


def _refusal(request: FetchRequest) -> int:
    """What is wrong with the request as a whole: another broker that wants to replicate, an unknown isolation."""
    if request.replica_id >= 0:
        return error_codes.NOT_LEADER_OR_FOLLOWER
    return error_codes.NONE if request.isolation in (0, 1) else error_codes.UNKNOWN_SERVER_ERROR


def _nothing(index: int, partition: PartitionLog, committed: bool) -> PartitionAnswer:
    return PartitionAnswer(
        index,
        error_codes.NONE,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start,
        [] if committed else None,
        _EMPTY,
    )


def _failed(index: int, code: int, aborted: list[tuple[int, int]] | None) -> PartitionAnswer:
    return PartitionAnswer(index, code, -1, -1, -1, aborted, _EMPTY)
