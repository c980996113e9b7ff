"""DescribeGroups: state, members and their assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.codes import Code
from headrace.broker.groups.messages import Phase

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext
    from headrace.broker.groups.group import ClassicGroup

API_KEY: Final = 15
VERSIONS: Final = (0, 6)

_NOT_FOUND_FROM = 6
_NOT_ASKED_FOR: Final = -(2**31)
_ALL_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""Read, delete, describe, describe configs, alter configs: all that can be done to a group."""


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """A group that is not there is Dead."""
    operations = _ALL_OPERATIONS if request.include_authorized_operations else _NOT_ASKED_FOR
    answers = []
    for group_id in request.groups:
        group = broker.groups.describe(group_id)
        answers.append(_absent(group_id, context.version) if group is None else _describe(group))
        if not answers[-1]["error_code"]:
            answers[-1]["authorized_operations"] = operations
    return {"groups": answers}


def _absent(group_id: str, version: int) -> dict[str, Any]:
    answer = {
        "group_id": group_id,
        "group_state": Phase.DEAD,
        "error_code": Code.NONE,
        "authorized_operations": _NOT_ASKED_FOR,
    }
    if version >= _NOT_FOUND_FROM:
        answer |= {"error_code": Code.GROUP_ID_NOT_FOUND, "error_message": f"Group {group_id} not found."}
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
