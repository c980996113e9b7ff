"""Share groups of a cluster, asked for in the protocol itself: the client library does not know them.

Only over plaintext connections, and of every broker, because each one knows the groups that it looks after.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.operations.question import ask, brokers

if TYPE_CHECKING:
    from headrace.operations.cluster import Cluster, Partition

__all__ = ["ShareGroup", "share_groups", "share_offsets"]

_LIST_GROUPS, _LIST_VERSION = 16, 5
_DESCRIBE, _DESCRIBE_VERSION = 77, 1
_OFFSETS, _OFFSETS_VERSION = 90, 0


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """A share group as its coordinator describes it."""

    name: str
    state: str
    assignor: str
    coordinator: str
    members: list[dict[str, Any]]


def share_groups(cluster: Cluster) -> list[ShareGroup]:
    """All share groups, by name. None of a broker that does not know them, or that does not talk plaintext."""
    found: list[ShareGroup] = []
    for connection, address in brokers(cluster):
        with contextlib.suppress(OSError, EOFError):
            found += _of_broker(connection, address)
    return sorted(found, key=lambda group: group.name)


def share_offsets(cluster: Cluster, group: str) -> dict[Partition, int]:
    """Before which offset a share group has settled everything, where that is known."""
    offsets: dict[Partition, int] = {}
    asked = {"groups": [{"group_id": group, "topics": None}]}
    for connection, _ in brokers(cluster):
        with contextlib.suppress(OSError, EOFError):
            answer = ask(connection, _OFFSETS, _OFFSETS_VERSION, asked)
            offsets |= {
                (topic.topic_name, partition.partition_index): partition.start_offset
                for found in answer.groups
                for topic in found.topics
                for partition in topic.partitions
                if partition.start_offset >= 0
            }
    return offsets


def _of_broker(connection: socket.socket, address: str) -> Iterable[ShareGroup]:
    asked = {"states_filter": (), "types_filter": ("share",)}
    listed = ask(connection, _LIST_GROUPS, _LIST_VERSION, asked)
    names = [group.group_id for group in listed.groups]
    if not names:
        return []
    described = ask(connection, _DESCRIBE, _DESCRIBE_VERSION, {"group_ids": names})
    return [
        ShareGroup(
            group.group_id,
            group.group_state.lower(),
            group.assignor_name,
            address,
            [
                {
                    "member": member.member_id,
                    "client": member.client_id,
                    "host": member.client_host,
                    "partitions": [
                        f"{topic.topic_name}[{index}]"
                        for topic in sorted(member.assignment.topic_partitions, key=lambda topic: topic.topic_name)
                        for index in sorted(topic.partitions)
                    ],
                }
                for member in group.members
            ],
        )
        for group in described.groups
    ]
