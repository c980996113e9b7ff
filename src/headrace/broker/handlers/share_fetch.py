"""ShareFetch: a member settles records that it was given, and gets more, or waits until there are some.

A fetch is answered when it got at least ``min_bytes`` of records, when something went wrong, or after ``max_wait_ms``;
and not before the acknowledgements that it brought are on disk. Partitions give in turn until ``max_records`` or
``max_bytes`` is reached, or as much as the quota of the client ever lets through at once. Nothing is acquired for a
member that is gone: while a fetch waits it has taken nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headrace.broker import error_codes
from headrace.broker.codecs.share import FetchAnswer, FetchRequest, decode_fetch_request, encode_fetch_response
from headrace.broker.quotas import client_id_of
from headrace.broker.refused import Refused
from headrace.broker.shares.acknowledging import Acknowledging, Outcome
from headrace.broker.shares.partition import SharePartition, Taken, Wish
from headrace.broker.shares.sessions import FINAL_EPOCH, OPENING_EPOCH, Place, SessionRefused, ShareSession, are_names
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.connection import Connection, Slot
    from headrace.broker.shares.coordinator import ShareCoordinator
    from headrace.log.partition import PartitionLog

__all__ = ["API_KEY", "FLEXIBLE_SINCE", "VERSIONS", "serve"]

API_KEY: Final = 78
VERSIONS: Final = (1, 2)
FLEXIBLE_SINCE: Final = 0

_RESPONSE_BYTES: Final = 16 << 20
_SCARCE_BYTES: Final = 64 << 10
_RECORD_LIMIT: Final = 1
_FINE: Final = Outcome()


def serve(connection: Connection, version: int, correlation_id: int, frame: memoryview, pos: int) -> None:
    """Handle one request."""
    request = decode_fetch_request(version, frame, pos)
    try:
        session = _session(connection, request)
    except SessionRefused as refused:
        connection.answer(encode_fetch_response(correlation_id, refused.code, None, 0, []))
        return
    client_id = client_id_of(frame) if connection.server.broker.quotas.limits_consumers else None
    _ShareFetch(connection, correlation_id, request, session, client_id).start()


def _session(connection: Connection, request: FetchRequest) -> ShareSession:
    """The session of a request, brought up to date."""
    shares = connection.server.broker.shares
    group, member, epoch = request.group, request.member, request.epoch
    asks = request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records
    if not are_names(group, member) or (request.renews and asks):
        raise SessionRefused(error_codes.INVALID_REQUEST)
    assert group is not None
    assert member is not None
    if epoch == FINAL_EPOCH:
        return shares.sessions.close(group, member)
    if epoch == OPENING_EPOCH:
        if any(part.batches for part in request.partitions):
            raise SessionRefused(error_codes.INVALID_REQUEST)
        session = shares.sessions.open(group, member)
        connection.on_close["share session", group, member] = lambda: shares.drop(session)
    else:
        session = shares.sessions.resume(group, member, epoch)
    for part in request.partitions:
        session.followed.setdefault((part.topic_id, part.partition))
    for place in request.forgotten:
        session.followed.pop(place, None)
    return session


class _ShareFetch:
    """One fetch, from the request to the answer."""

    __slots__ = (
        "_acks",
        "_client_id",
        "_connection",
        "_correlation_id",
        "_errors",
        "_finished",
        "_max_bytes",
        "_request",
        "_session",
        "_shares",
        "_slot",
        "_taken",
        "_timer",
        "_wake_scheduled",
    )

    def __init__(
        self,
        connection: Connection,
        correlation_id: int,
        request: FetchRequest,
        session: ShareSession,
        client_id: str | None,
    ) -> None:
        broker = connection.server.broker
        self._client_id = client_id
        self._connection = connection
        self._correlation_id = correlation_id
        self._request = request
        self._session = session
        self._shares: dict[Place, SharePartition] = {}
        self._errors: dict[Place, Outcome] = {}
        self._taken: dict[Place, Taken] = {}
        self._max_bytes = max(0, min(request.max_bytes, broker.fetch_max_bytes, _RESPONSE_BYTES))
        if client_id is not None and (most := broker.quotas.most_at_once(client_id)) is not None:
            self._max_bytes = min(self._max_bytes, most)
        self._acks = Acknowledging(broker.shares, session.group, session.member, request.renews)
        self._acks.on_done = self._answer_if_done
        self._finished = False
        self._slot: Slot | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wake_scheduled = False

    @property
    def _coordinator(self) -> ShareCoordinator:
        return self._connection.server.broker.shares

    def start(self) -> None:
        """Take the acknowledgements; answer now, or park."""
        request = self._request
        for topic_id, index, batches in request.partitions:
            if batches:
                self._acks.take((topic_id, index), batches)
        if request.epoch == FINAL_EPOCH:
            self._coordinator.release(self._session)
        elif not request.renews and request.max_records > 0:
            self._resolve()
            self._take(at_any_rate=request.max_wait_ms <= 0)
            if not self._is_over():
                self._park()
                return
        self._finish()

    def _is_over(self) -> bool:
        """Whether there is nothing to wait for."""
        return (
            bool(self._taken)
            or self._acks.failed
            or self._request.max_wait_ms <= 0
            or len(self._errors) == len(self._session.followed)
        )

    # Waiting ---------------------------------------------------------------------------------------------------

    def _park(self) -> None:
        self._slot = self._connection.park()
        self._connection.on_close[self] = self._stop_listening
        for share in self._shares.values():
            share.listeners.add(self._on_change)
            share.log.listeners.add(self._on_log)
        delay = self._request.max_wait_ms / 1000
        self._timer = self._connection.server.broker.loop.call_later(delay, self._time_is_up)

    def _stop_listening(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for share in self._shares.values():
            share.listeners.discard(self._on_change)
            share.log.listeners.discard(self._on_log)

    def _on_log(self, partition: PartitionLog) -> None:
        self._on_change()

    def _on_change(self) -> None:
        """Something moved: look again once all that happens now has happened."""
        if not self._wake_scheduled:
            self._wake_scheduled = True
            self._connection.server.broker.loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._wake_scheduled = False
        if self._timer is None or self._connection.closed:
            return
        if self._slot is not None and self._connection.is_held_up(self._slot):
            self._connection.when_room(self._look_again)
            return
        if any(share.gone or share.log.deleted for share in self._shares.values()):
            self._resolve()
        self._take()
        if self._is_over() or self._session.closed:
            self._end_wait()

    def _time_is_up(self) -> None:
        if self._slot is None or not self._connection.is_held_up(self._slot):
            self._take(at_any_rate=True)
        self._end_wait()

    def _end_wait(self) -> None:
        self._stop_listening()
        self._connection.on_close.pop(self, None)
        self._finish()

    # Taking ----------------------------------------------------------------------------------------------------

    def _resolve(self) -> None:
        self._shares.clear()
        for place in self._session.followed:
            try:
                self._shares[place] = self._coordinator.find(self._session.group, *place)
            except Refused as refused:
                self._errors[place] = Outcome(refused.code, str(refused))

    def _take(self, *, at_any_rate: bool = False) -> None:
        """Take what there is, in turn; unless it is too little and we can wait."""
        request, session = self._request, self._session
        if session.closed or not (at_any_rate or request.min_bytes <= 1 or self._has_enough()):
            return
        left = request.max_records
        room = min(self._max_bytes, _SCARCE_BYTES) if self._connection.server.is_full else self._max_bytes
        for place, share in self._shares.items():
            if left <= 0 or (room <= 0 and self._taken):
                break
            strict = request.mode == _RECORD_LIMIT
            wish = Wish(left, room, not self._taken, strict, request.batch_size)
            try:
                taken = self._coordinator.take(share, session, wish)
            except HeadraceError as error:
                self._errors[place] = Outcome(error.kafka_code, str(error))
                continue
            if taken is not None:
                self._taken[place] = taken
                left -= taken.records
                room -= taken.size
                share.log.sent_bytes += taken.size
        for place in self._taken:
            session.to_the_back(place)

    def _has_enough(self) -> bool:
        """Whether there seem to be as many bytes as were asked for."""
        now, wanted, total = self._coordinator.now(), min(self._request.min_bytes, self._max_bytes), 0
        for share in self._shares.values():
            offset = share.has_work(now)
            if offset >= 0:
                total += share.log.available_bytes(offset, share.mode.committed, wanted - total)
            if total >= wanted:
                return True
        return False

    # Answering -------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._finished = True
        if self._acks.pending and self._slot is None:
            self._slot = self._connection.park()
        self._answer_if_done()

    def _answer_if_done(self) -> None:
        if not self._finished or self._acks.pending:
            return
        named = [(part.topic_id, part.partition) for part in self._request.partitions]
        places = named if self._request.epoch in (OPENING_EPOCH, FINAL_EPOCH) else list(self._acks.outcomes)
        places = list(dict.fromkeys((*self._taken, *self._errors, *places)))
        lock_ms = self._coordinator.mode(self._session.group).rules.lock_ms
        answers = [self._answer(place) for place in places]
        wait_ms = self._throttled_ms()
        response = encode_fetch_response(self._correlation_id, error_codes.NONE, None, lock_ms, answers, wait_ms)
        if self._slot is None:
            self._connection.answer(response)
        else:
            self._connection.complete(self._slot, response)

    def _throttled_ms(self) -> int:
        if self._client_id is None:
            return 0
        size = sum(taken.size for taken in self._taken.values())
        return self._connection.server.broker.quotas.shared(self._connection, self._client_id, size)

    def _answer(self, place: Place) -> FetchAnswer:
        code, message = self._errors.get(place, _FINE)
        ack_code, ack_message = self._acks.outcomes.get(place, _FINE)
        taken = self._taken.get(place)
        if taken is None:
            return FetchAnswer(*place, code, message, ack_code, ack_message, (), ())
        return FetchAnswer(*place, code, message, ack_code, ack_message, taken.data, taken.acquired)
