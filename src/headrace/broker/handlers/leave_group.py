"""LeaveGroup: members go, or an operator sends static members away by their instance ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.messages import Leaver

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

API_KEY: Final = 13
VERSIONS: Final = (0, 5)

_BATCHED_FROM = 3


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Versions below 3 name one member, and its error is the answer's."""
    if context.version < _BATCHED_FROM:
        code, codes = await broker.groups.leave(request.group_id, [Leaver(request.member_id, None)])
        return {"error_code": code or (codes[0] if codes else code)}
    leavers = [Leaver(member.member_id, member.group_instance_id) for member in request.members]
    code, codes = await broker.groups.leave(request.group_id, leavers)
    return {
        "error_code": code,
        "members": [
            {"member_id": leaver.member_id, "group_instance_id": leaver.instance_id, "error_code": each}
            for leaver, each in zip(leavers, codes, strict=False)
        ],
    }
