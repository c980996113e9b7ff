"""What goes into a consumer group or share group and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headrace.broker.groups.codes import Code
from headrace.broker.groups.modern_records import Partitions

__all__ = ["JOIN", "LEAVE", "LEAVE_FOR_A_WHILE", "HeartbeatAnswer", "HeartbeatRequest", "ModernPhase"]

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
"""Member epochs that ask for something: to be taken in, to go, or (a static member) to go and come back."""


class ModernPhase(StrEnum):
    """Where a group is, in the words that clients are told."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A member says that it is alive, and what has changed; None (or -1) is what has not."""

    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as after an error."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.topics is not None or self.regex is not None)
            and self.owned is not None
        )


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """A member's epoch, and if that is news what it has."""

    code: Code
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    interval_ms: int = 0
    assignment: Partitions | None = None
