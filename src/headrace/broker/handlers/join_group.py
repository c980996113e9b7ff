"""JoinGroup: become or stay a member of a group. The answer comes when the group has agreed on who its members are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.messages import JoinRequest

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

API_KEY: Final = 11
VERSIONS: Final = (0, 9)

_REBALANCE_TIMEOUT_FROM, _MEMBER_ID_REQUIRED_FROM, _NULL_PROTOCOL_FROM, _SKIP_ASSIGNMENT_FROM = 1, 4, 7, 9


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """May wait as long as the longest rebalance timeout of the group's members."""
    version = context.version
    has_own_timeout = version >= _REBALANCE_TIMEOUT_FROM
    answer = await broker.groups.join(
        request.group_id,
        JoinRequest(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms if has_own_timeout else request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
            must_know_id=version >= _MEMBER_ID_REQUIRED_FROM,
            may_skip_assignment=version >= _SKIP_ASSIGNMENT_FROM,
        ),
    )
    protocol = answer.protocol
    return {
        "error_code": answer.code,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": "" if protocol is None and version < _NULL_PROTOCOL_FROM else protocol,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "metadata": member.metadata}
            for member in answer.members
        ],
    }
