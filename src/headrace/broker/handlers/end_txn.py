"""EndTxn: commit or abort. Answered when all of the transaction's partitions say so, on disk.

From version 5 on a client gets a new epoch with each end, so that whatever it sends late is known to be late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.transactional import failure_code
from headrace.broker.transactions.coordinator import Producer
from headrace.broker.transactions.transitions import VERSION_2
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 26
VERSIONS: Final = (0, 5)

_FENCED_SINCE, _VERSION_2_SINCE = 2, 5


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """The producer id and epoch to go on with, where the client takes them."""
    is_version_2 = context.version >= _VERSION_2_SINCE
    try:
        producer_id, epoch = await broker.transactions.end(
            Producer(request.transactional_id, request.producer_id, request.producer_epoch),
            commit=request.committed,
            version=VERSION_2 if is_version_2 else 0,
            connection_id=context.connection_id,
        )
    except HeadraceError as error:
        code = failure_code(error, knows_fenced=context.version >= _FENCED_SINCE)
        return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    return {"error_code": error_codes.NONE, "producer_id": producer_id, "producer_epoch": epoch}
