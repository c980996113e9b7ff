"""One member of a classic group."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.broker.groups.messages import JoinRequest, Protocols
from headrace.broker.groups.records import MemberMetadata

__all__ = ["NEVER", "Member"]

NEVER = float("inf")


@dataclass(slots=True)
class Member:
    """Who it is, what it can do, what it was given, and by when it must be heard of.

    ``deadline`` is on the monotonic clock. ``new`` until its first join is answered: so long it cannot send heartbeats.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    new: bool = False
    deadline: float = NEVER

    @classmethod
    def joining(cls, member_id: str, request: JoinRequest) -> Member:
        """A member that asks to join."""
        return cls(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            new=True,
        )

    @classmethod
    def restored(cls, stored: MemberMetadata, protocol: str | None) -> Member:
        """A member read back from the log: of its protocols only the chosen one is known."""
        return cls(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout_ms,
            stored.session_timeout_ms,
            ((protocol or "", stored.subscription),),
            stored.assignment,
        )

    def stored(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        """As it is written to the log."""
        return MemberMetadata(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )

    def renamed(self, member_id: str) -> Member:
        """The same member under a new id."""
        return replace(self, member_id=member_id)

    def update(self, request: JoinRequest) -> None:
        """Take over what a member says when it joins again."""
        self.protocols = request.protocols
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.session_timeout_ms = request.session_timeout_ms

    def metadata(self, protocol: str | None) -> bytes:
        """What the member says for one protocol; empty if it does not know it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """The candidate that this member likes best."""
        return next(name for name, _ in self.protocols if name in candidates)

    def protocol_names(self) -> set[str]:
        """Names of the protocols it can do."""
        return {name for name, _ in self.protocols}
