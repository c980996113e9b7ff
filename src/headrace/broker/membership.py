"""How the handlers of consumer groups and share groups say things: heartbeats, and what members have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.codes import Code
from headrace.broker.groups.modern_group import phase_of

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext
    from headrace.broker.groups.modern_messages import HeartbeatAnswer
    from headrace.broker.groups.modern_records import GroupType, Partitions
    from headrace.broker.groups.modern_state import ModernState

__all__ = ["ALL_OPERATIONS", "NOT_ASKED_FOR", "client_host", "describe", "heartbeat_response", "invalid", "named"]

NOT_ASKED_FOR: Final = -(2**31)
ALL_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""Read, delete, describe, describe configs, alter configs: all that can be done to a group."""


def client_host(context: RequestContext) -> str:
    """The client's address as groups note it."""
    return f"/{context.client_host}"


def invalid(message: str) -> dict[str, Any]:
    """The answer to a heartbeat that makes no sense."""
    return {"error_code": Code.INVALID_REQUEST, "error_message": message}


def heartbeat_response(answer: HeartbeatAnswer) -> dict[str, Any]:
    """The response of either heartbeat."""
    assignment = answer.assignment
    return {
        "error_code": answer.code,
        "error_message": answer.message,
        "member_id": answer.member_id,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval_ms": answer.interval_ms,
        "assignment": None
        if assignment is None
        else {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": sorted(partitions)} for topic_id, partitions in assignment.items()
            ]
        },
    }


def named(broker: Broker, partitions: Partitions) -> dict[str, Any]:
    """What a member has, with the names of the topics that still exist."""
    names = ((topic_id, broker.groups.topics.name_of(topic_id), numbers) for topic_id, numbers in partitions.items())
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": name, "partitions": sorted(numbers)}
            for topic_id, name, numbers in names
            if name is not None
        ]
    }


def describe(broker: Broker, group_ids: Iterable[str], group_type: GroupType, operations: int) -> list[dict[str, Any]]:
    """The groups, without their members: those of this type, and an error for others."""
    answers = []
    for group_id in group_ids:
        state = broker.groups.describe_modern(group_id)
        damage = broker.groups.journal.damaged.get(group_id)
        if damage is not None:
            answers.append(_refused(group_id, Code.UNKNOWN_SERVER_ERROR, damage))
        elif state is None and broker.groups.describe(group_id) is None:
            answers.append(_refused(group_id, Code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."))
        elif state is None or state.type is not group_type:
            message = f"Group {group_id} is not a {group_type} group."
            answers.append(_refused(group_id, Code.GROUP_ID_NOT_FOUND, message))
        else:
            answers.append(_described(group_id, state) | {"authorized_operations": operations})
    return answers


def _refused(group_id: str, code: Code, message: str) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "error_code": code,
        "error_message": message,
        "authorized_operations": NOT_ASKED_FOR,
    }


def _described(group_id: str, state: ModernState) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "group_state": phase_of(state),
        "group_epoch": state.epoch.epoch,
        "assignment_epoch": state.target_epoch.epoch,
    }
