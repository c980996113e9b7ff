"""ShareAcknowledge: a member settles records that it was given; answered when that is on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker import error_codes
from headrace.broker.codecs.share import AckAnswer, AckRequest, decode_ack_request, encode_ack_response
from headrace.broker.shares.acknowledging import Acknowledging
from headrace.broker.shares.sessions import FINAL_EPOCH, OPENING_EPOCH, SessionRefused, are_names

if TYPE_CHECKING:
    from headrace.broker.connection import Connection
    from headrace.broker.shares.coordinator import ShareCoordinator
    from headrace.broker.shares.sessions import ShareSession

__all__ = ["API_KEY", "FLEXIBLE_SINCE", "VERSIONS", "serve"]

API_KEY: Final = 79
VERSIONS: Final = (1, 2)
FLEXIBLE_SINCE: Final = 0


def serve(connection: Connection, version: int, correlation_id: int, frame: memoryview, pos: int) -> None:
    """Handle one request."""
    request = decode_ack_request(version, frame, pos)
    shares = connection.server.broker.shares
    group, member = request.group, request.member
    try:
        session = _session(shares, request)
    except SessionRefused as refused:
        connection.answer(encode_ack_response(version, correlation_id, refused.code, None, 0, []))
        return
    assert group is not None
    assert member is not None
    acks = Acknowledging(shares, group, member, request.renews)
    for topic_id, index, batches in request.partitions:
        acks.take((topic_id, index), batches)
    if request.epoch == FINAL_EPOCH:
        shares.release(session)
    lock_ms = shares.mode(group).rules.lock_ms

    def response() -> bytearray:
        answers = [AckAnswer(*place, *outcome) for place, outcome in acks.outcomes.items()]
        return encode_ack_response(version, correlation_id, error_codes.NONE, None, lock_ms, answers)

    if acks.pending:
        slot = connection.park()
        acks.on_done = lambda: connection.complete(slot, response())
    else:
        connection.answer(response())


def _session(shares: ShareCoordinator, request: AckRequest) -> ShareSession:
    group, member, epoch = request.group, request.member, request.epoch
    if not are_names(group, member):
        raise SessionRefused(error_codes.INVALID_REQUEST)
    assert group is not None
    assert member is not None
    if epoch == OPENING_EPOCH:
        raise SessionRefused(error_codes.INVALID_SHARE_SESSION_EPOCH)
    if epoch == FINAL_EPOCH:
        return shares.sessions.close(group, member)
    return shares.sessions.resume(group, member, epoch)
