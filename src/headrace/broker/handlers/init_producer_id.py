"""InitProducerId: a producer id that was never given before, or, for a transactional id, its id and next epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.transactional import failure_code
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 22
VERSIONS: Final = (0, 5)

_NONE: Final = -1
_FENCED_SINCE: Final = 4


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Taking a transactional id fences whoever had it before."""
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE) or request.transactional_id == "":
        return _refused(error_codes.INVALID_REQUEST)
    if request.transactional_id is None:
        return {"producer_id": broker.store.new_producer_id(), "producer_epoch": 0}
    expected = None if request.producer_id == _NONE else (request.producer_id, request.producer_epoch)
    try:
        producer_id, epoch = await broker.transactions.initialise(
            request.transactional_id, request.transaction_timeout_ms, expected
        )
    except HeadraceError as error:
        return _refused(failure_code(error, knows_fenced=context.version >= _FENCED_SINCE))
    return {"producer_id": producer_id, "producer_epoch": epoch}


def _refused(code: int) -> dict[str, Any]:
    return {"error_code": code, "producer_id": _NONE, "producer_epoch": _NONE}
