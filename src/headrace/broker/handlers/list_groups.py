"""ListGroups: all groups, or those of given states and types. Headrace has one type so far: classic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.codes import Code

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

API_KEY: Final = 16
VERSIONS: Final = (0, 5)

_CLASSIC = "classic"


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Filters do not mind the case; an empty one lets everything through."""
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.strip().lower() for kind in request.types_filter}
    groups = []
    if not types or _CLASSIC in types:
        for group_id in broker.groups.group_ids():
            group = broker.groups.describe(group_id)
            if group is not None and (not states or group.phase.lower() in states):
                groups.append(
                    {
                        "group_id": group_id,
                        "protocol_type": group.protocol_type or "",
                        "group_state": group.phase,
                        "group_type": _CLASSIC,
                    }
                )
    return {"error_code": Code.NONE, "groups": groups}
