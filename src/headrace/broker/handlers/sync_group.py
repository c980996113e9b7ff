"""SyncGroup: the leader hands in everyone's assignment, and everyone gets theirs, once it is on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.codes import Code
from headrace.broker.groups.messages import SyncRequest

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

API_KEY: Final = 14
VERSIONS: Final = (0, 5)

_PROTOCOL_REQUIRED_FROM = 5


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Followers wait for the leader."""
    if context.version >= _PROTOCOL_REQUIRED_FROM and (request.protocol_type is None or request.protocol_name is None):
        return {"error_code": Code.INCONSISTENT_GROUP_PROTOCOL, "assignment": b""}
    answer = await broker.groups.sync(
        request.group_id,
        SyncRequest(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments={given.member_id: bytes(given.assignment) for given in request.assignments},
        ),
    )
    return {
        "error_code": answer.code,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol,
        "assignment": answer.assignment,
    }
