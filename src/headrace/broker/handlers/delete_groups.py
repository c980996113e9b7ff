"""DeleteGroups: groups without members go, with their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

API_KEY: Final = 42
VERSIONS: Final = (0, 2)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each group has its own result."""
    codes = await broker.groups.delete_groups(request.groups_names)
    return {"results": [{"group_id": group_id, "error_code": code} for group_id, code in codes.items()]}
