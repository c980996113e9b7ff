"""What goes into a group and what comes out of it: requests, answers, and things to store."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from headrace.broker.groups.codes import Code
from headrace.broker.groups.records import GroupMetadata

__all__ = [
    "Answer",
    "Effect",
    "JoinAnswer",
    "JoinMember",
    "JoinRequest",
    "Leaver",
    "Phase",
    "Protocols",
    "Store",
    "SyncAnswer",
    "SyncRequest",
    "Ticket",
]

Protocols = tuple[tuple[str, bytes], ...]
"""Names of assignment protocols, the most wanted first, each with the member's metadata for it."""

Ticket = object
"""Stands for a request that waits for its answer; the group only hands it back."""


class Phase(StrEnum):
    """Where a group is, in the words that clients are told."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A member, new or old, wants to be in the next generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    must_know_id: bool = True
    may_skip_assignment: bool = True


@dataclass(frozen=True, slots=True)
class JoinMember:
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The answer to a join: the generation, and for its leader the members."""

    code: Code
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A member asks for its assignment; the leader brings everyone's."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """A member's assignment."""

    code: Code
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Leaver:
    """One of those whom a LeaveGroup request names. An operator names only the instance."""

    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """Effect: tell the one who waits."""

    ticket: Ticket
    response: JoinAnswer | SyncAnswer


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Effect: write this to the log, and say ``stored`` once it is durable or has failed.

    ``replaced`` is set when a static member came back under a new id: the ids (old, new).
    """

    metadata: GroupMetadata
    replaced: tuple[str, str] | None = None
    may_skip_assignment: bool = False


Effect = Answer | Store
