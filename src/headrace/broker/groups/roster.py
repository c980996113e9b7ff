"""The list of a group's members: who leads, who is static, what they have in common."""

from __future__ import annotations

from collections import Counter

from headrace.broker.groups.codes import Code
from headrace.broker.groups.member import Member
from headrace.broker.groups.messages import JoinRequest, Protocols
from headrace.broker.groups.subscription import topics_of

__all__ = ["Roster"]


class Roster:
    """Members by id, in the order in which they came. The first one leads until someone else is chosen."""

    __slots__ = ("_static", "_supported", "leader", "members")

    def __init__(self, leader: str | None) -> None:
        self.leader = leader
        self.members: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._supported: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.members)

    # --- changes ---

    def add(self, member: Member) -> None:
        """Take a member in."""
        self.members[member.member_id] = member
        self._supported.update(member.protocol_names())
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> None:
        """Strike a member off, if it is there; if it led, the eldest leads."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._supported.subtract(member.protocol_names())
        if member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, old_id: str, new_id: str) -> None:
        """Give a static member a new id; it keeps its place and whether it leads."""
        member = self.members[old_id].renamed(new_id)
        self.members = {(new_id if key == old_id else key): value for key, value in self.members.items()}
        self.members[new_id] = member
        assert member.instance_id is not None
        self._static[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id

    def update(self, member: Member, request: JoinRequest) -> None:
        """Take over what a member says when it joins again."""
        self.set_protocols(member, request.protocols)
        member.update(request)

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """A member knows these protocols."""
        self._supported.subtract(member.protocol_names())
        member.protocols = protocols
        self._supported.update(member.protocol_names())

    # --- questions ---

    def check(self, member_id: str, instance_id: str | None) -> Code:
        """Is this a member, and if it says that it is static, the one of that name?"""
        if instance_id is not None:
            known = self._static.get(instance_id)
            if known is None:
                return Code.UNKNOWN_MEMBER_ID
            if known != member_id:
                return Code.FENCED_INSTANCE_ID
        return Code.NONE if member_id in self.members else Code.UNKNOWN_MEMBER_ID

    def static_id(self, instance_id: str) -> str | None:
        """The id that a static member has now."""
        return self._static.get(instance_id)

    def has_in_common(self, protocols: Protocols) -> bool:
        """Does every member know one of these protocols, the same one?"""
        return any(self._supported[name] == len(self.members) for name, _ in protocols)

    def choose_protocol(self) -> str:
        """Of the protocols that all know, the one most members like best."""
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def topics(self, protocol: str | None) -> frozenset[str] | None:
        """The topics that the members, being consumers, subscribe to; None if one cannot be read."""
        if self.members and protocol is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            named = topics_of(member.metadata(protocol))
            if named is None:
                return None
            topics |= named
        return frozenset(topics)

    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
