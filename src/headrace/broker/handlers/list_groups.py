"""ListGroups: all groups, or those of given states and types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.codes import Code

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

API_KEY: Final = 16
VERSIONS: Final = (0, 5)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Filters do not mind the case; an empty one lets everything through."""
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.strip().lower() for kind in request.types_filter}
    groups = [
        {
            "group_id": group.group_id,
            "protocol_type": group.protocol_type,
            "group_state": group.state,
            "group_type": group.type,
        }
        for group in map(broker.groups.listed, broker.groups.group_ids())
        if group is not None and (not states or group.state.lower() in states) and (not types or group.type in types)
    ]
    return {"error_code": Code.NONE, "groups": groups}
