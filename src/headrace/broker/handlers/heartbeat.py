"""Heartbeat: a member is alive, and hears whether it should join again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

API_KEY: Final = 12
VERSIONS: Final = (0, 4)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Never waits."""
    code = broker.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return {"error_code": code}
