"""AddOffsetsToTxn: a client is about to commit offsets of a group in its transaction. Answered once it is on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.transactional import failure_code
from headrace.broker.transactions.coordinator import OFFSETS_PLACE, Producer
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 25
VERSIONS: Final = (0, 4)

_FENCED_SINCE: Final = 2


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """The groups' topic becomes part of the transaction. Newer clients need not ask."""
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    code = error_codes.NONE
    broker.groups.ensure_log()
    try:
        await broker.transactions.add_partitions(
            producer, (OFFSETS_PLACE,), version=0, connection_id=context.connection_id
        )
    except HeadraceError as error:
        code = failure_code(error, knows_fenced=context.version >= _FENCED_SINCE)
    return {"error_code": code}
