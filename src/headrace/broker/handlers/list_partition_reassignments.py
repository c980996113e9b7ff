"""ListPartitionReassignments: with one node nothing is ever being moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 46
VERSIONS: Final = (0, 0)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """None."""
    return {"topics": []}
