"""DeleteAcls: answered as Kafka does where no authorizer is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.handlers.describe_acls import NO_AUTHORIZER

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 31
VERSIONS: Final = (1, 3)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each is refused."""
    refused = {"error_code": error_codes.SECURITY_DISABLED, "error_message": NO_AUTHORIZER, "matching_acls": []}
    return {"filter_results": [refused for _ in request.filters]}
