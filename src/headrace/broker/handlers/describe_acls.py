"""DescribeAcls: answered as Kafka does where no authorizer is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "NO_AUTHORIZER", "VERSIONS", "handle"]

API_KEY: Final = 29
VERSIONS: Final = (1, 3)

NO_AUTHORIZER: Final = "No Authorizer is configured."


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """There are none."""
    return {"error_code": error_codes.SECURITY_DISABLED, "error_message": NO_AUTHORIZER, "resources": []}
