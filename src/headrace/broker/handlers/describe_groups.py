"""DescribeGroups: state, members and their assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.codes import Code
from headrace.broker.groups.messages import Phase
from headrace.broker.membership import ALL_OPERATIONS, NOT_ASKED_FOR

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext
    from headrace.broker.groups.group import ClassicGroup

API_KEY: Final = 15
VERSIONS: Final = (0, 6)

_NOT_FOUND_FROM = 6


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """A group that is not there, or not a classic one, is Dead."""
    operations = ALL_OPERATIONS if request.include_authorized_operations else NOT_ASKED_FOR
    answers = []
    for group_id in request.groups:
        damage = broker.groups.journal.damaged.get(group_id)
        group = broker.groups.describe(group_id)
        if damage is not None:
            answers.append(_damaged(group_id, damage))
        else:
            answers.append(_absent(broker, group_id, context.version) if group is None else _describe(group))
        if not answers[-1]["error_code"]:
            answers[-1]["authorized_operations"] = operations
    return {"groups": answers}


def _damaged(group_id: str, damage: str) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "error_code": Code.UNKNOWN_SERVER_ERROR,
        "error_message": damage,
        "authorized_operations": NOT_ASKED_FOR,
    }


def _absent(broker: Broker, group_id: str, version: int) -> dict[str, Any]:
    answer = {
        "group_id": group_id,
        "group_state": Phase.DEAD,
        "error_code": Code.NONE,
        "authorized_operations": NOT_ASKED_FOR,
    }
    if version >= _NOT_FOUND_FROM:
        other = broker.groups.describe_modern(group_id) is not None
        message = f"Group {group_id} is not a classic group." if other else f"Group {group_id} not found."
        answer |= {"error_code": Code.GROUP_ID_NOT_FOUND, "error_message": message}
    return answer


def _describe(group: ClassicGroup) -> dict[str, Any]:
    is_stable = group.phase is Phase.STABLE
    return {
        "error_code": Code.NONE,
        "group_id": group.group_id,
        "group_state": group.phase,
        "protocol_type": group.protocol_type or "",
        "protocol_data": group.protocol or "" if is_stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol) if is_stable else b"",
                "member_assignment": member.assignment,
            }
            for member in group.members.values()
        ],
    }
