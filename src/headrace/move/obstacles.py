"""What stands in the way on the target, looked for before anything is written there: requests that its brokers do not
know, topics of the same names, groups of the same names that cannot be set."""

from __future__ import annotations

from headrace.move.connection import Brokers, check
from headrace.move.groups import Group
from headrace.move.notes import Notes
from headrace.move.plan import Plan
from headrace.move.target import TargetTopics

__all__ = ["NEEDED", "obstacles"]

_API_VERSIONS, _ASKED_VERSION = 18, 0
_LIST_GROUPS, _LIST_VERSION = 16, 5

NEEDED: dict[str, tuple[int, int]] = {
    "Produce": (0, 11),
    "Fetch": (1, 12),
    "Metadata": (3, 12),
    "FindCoordinator": (10, 4),
    "ListGroups": (_LIST_GROUPS, _LIST_VERSION),
    "DeleteRecords": (21, 2),
    "InitProducerId": (22, 4),
    "OffsetForLeaderEpoch": (23, 4),
    "AddPartitionsToTxn": (24, 3),
    "EndTxn": (26, 3),
    "IncrementalAlterConfigs": (44, 1),
}
"""The requests of every move, and in which version."""
_FOR_QUEUES = {"AlterShareGroupOffsets (Kafka 4.2 has it)": (91, 0)}


def obstacles(brokers: Brokers, topics: TargetTopics, notes: Notes, plan: Plan) -> list[str]:
    """All of it, in sentences; nothing if the move was finished before."""
    if notes.finished is not None:
        return []
    missing = _missing(brokers, plan)
    if missing:
        return missing
    taken = [f"the target has a topic {name} already" for name in topics.taken(plan.topics)]
    return taken + _groups(brokers, plan)


def _missing(brokers: Brokers, plan: Plan) -> list[str]:
    queues = any(group.is_share and group.offsets for group in plan.groups)
    needed = {**NEEDED, **(_FOR_QUEUES if queues else {})}
    found = []
    for connection in brokers.all():
        told = connection.call(_API_VERSIONS, _ASKED_VERSION, {})
        check(f"{connection.place} does not say what it can do", told.error_code)
        known = {one.api_key: range(one.min_version, one.max_version + 1) for one in told.api_keys}
        missing = [name for name, (api, version) in needed.items() if version not in known.get(api, ())]
        if missing:
            lacks = ", ".join(missing)
            found.append(f"the target's broker {connection.place} cannot do what a move needs: {lacks}")
    return found


def _groups(brokers: Brokers, plan: Plan) -> list[str]:
    wanted = {group.name: group for group in plan.groups if group.is_to_be_set}
    found = []
    for connection in brokers.all():
        told = connection.call(_LIST_GROUPS, _LIST_VERSION, {"states_filter": [], "types_filter": []})
        check("the groups of the target could not be listed", told.error_code)
        for one in told.groups:
            there = Group(one.group_id, one.group_type.lower(), one.group_state, {})
            if there.name in wanted:
                found += _in_the_way(wanted[there.name], there)
    return sorted(found)


def _in_the_way(ours: Group, there: Group) -> list[str]:
    if there.is_share and not ours.is_share:
        return [f"group {ours.name} is a queue (share group) on the target, and none here"]
    if ours.is_share and not there.is_share:
        return [f"group {ours.name} is a queue (share group) here, and none on the target"]
    return [f"group {ours.name} has members on the target ({there.state.lower()})"] if there.is_active else []
