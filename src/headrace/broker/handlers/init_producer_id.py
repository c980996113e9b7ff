"""InitProducerId: a producer id that was never given before. Transactional ids come with transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 22
VERSIONS: Final = (0, 5)

_NONE: Final = -1


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """A new id with epoch 0."""
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE) or request.transactional_id == "":
        return _refused(error_codes.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refused(error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return {"producer_id": broker.store.new_producer_id(), "producer_epoch": 0}


def _refused(code: int) -> dict[str, Any]:
    return {"error_code": code, "producer_id": _NONE, "producer_epoch": _NONE}
