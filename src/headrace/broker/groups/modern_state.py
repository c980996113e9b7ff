"""What is known of one consumer group or share group: a part of the fold of ``__consumer_offsets``.

``apply`` is used for records as they are written and as they are replayed. ``owners`` and ``instances`` follow from the
records, and are kept because they are asked for all the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar
from uuid import UUID

from headrace.broker.groups.modern_records import (
    CurrentAssignment,
    CurrentChange,
    EpochChange,
    GroupEpoch,
    GroupType,
    MemberState,
    ModernChange,
    Partitions,
    RegexChange,
    ResolvedRegex,
    Subscription,
    SubscriptionChange,
    TargetChange,
    TargetEpoch,
    TargetEpochChange,
)

__all__ = ["NEW_MEMBER", "ModernState"]

V = TypeVar("V")

NEW_MEMBER = CurrentAssignment(0, -1, MemberState.STABLE, {}, {})
"""What a member has before it was ever told anything."""

_FIRST_EPOCH = GroupEpoch(1, 0)
_NO_TARGET = TargetEpoch(0)


class ModernState:
    """A group's epochs, and by member id what it subscribes to, what it is to have and what it has.

    ``owners`` says by (topic id, partition) which member has a partition or was told to give it up and has not yet.
    ``instances`` has the ids of static members.
    """

    __slots__ = (
        "current",
        "epoch",
        "instances",
        "owners",
        "regexes",
        "subscriptions",
        "target_epoch",
        "targets",
        "type",
    )

    def __init__(self, group_type: GroupType) -> None:
        self.type = group_type
        self.epoch = _FIRST_EPOCH
        self.target_epoch = _NO_TARGET
        self.subscriptions: dict[str, Subscription] = {}
        self.targets: dict[str, Partitions] = {}
        self.current: dict[str, CurrentAssignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[tuple[UUID, int], str] = {}
        self.instances: dict[str, str] = {}

    def apply(self, change: ModernChange) -> None:
        """Take one change in."""
        match change:
            case EpochChange(value=value):
                self.epoch = value or _FIRST_EPOCH
            case TargetEpochChange(value=value):
                self.target_epoch = value or _NO_TARGET
            case SubscriptionChange():
                self._apply_subscription(change)
            case TargetChange():
                _put(self.targets, change.member, change.value)
            case CurrentChange():
                self._apply_current(change)
            case RegexChange():
                _put(self.regexes, change.regex, change.value)

    def _apply_subscription(self, change: SubscriptionChange) -> None:
        old = self.subscriptions.get(change.member)
        if old is not None and old.instance_id is not None and self.instances.get(old.instance_id) == change.member:
            del self.instances[old.instance_id]
        _put(self.subscriptions, change.member, change.value)
        if change.value is not None and change.value.instance_id is not None:
            self.instances[change.value.instance_id] = change.member

    def _apply_current(self, change: CurrentChange) -> None:
        member = change.member
        if self.type is GroupType.CONSUMER:
            for place in _places(self.current.get(member)):
                if self.owners.get(place) == member:
                    del self.owners[place]
            for place in _places(change.value):
                self.owners[place] = member
        _put(self.current, member, change.value)

    # --- questions ---

    def current_of(self, member: str) -> CurrentAssignment:
        """What a member has."""
        return self.current.get(member, NEW_MEMBER)

    def target_of(self, member: str) -> Partitions:
        """What a member is to have."""
        return self.targets.get(member, {})

    def classic_members(self) -> list[str]:
        """The members that speak the classic protocol."""
        return [member for member, subscription in self.subscriptions.items() if subscription.classic is not None]

    def topics_of(self, subscription: Subscription) -> frozenset[str]:
        """The topics that a subscription names, by itself or by its regular expression."""
        topics = frozenset(subscription.topics)
        resolved = self.regexes.get(subscription.regex or "")
        return topics if resolved is None else topics.union(resolved.topics)

    def topics(self) -> frozenset[str]:
        """The topics that the group subscribes to."""
        return frozenset().union(*map(self.topics_of, set(self.subscriptions.values())))

    def is_reconciled(self, member: str) -> bool:
        """Whether a member has all that it is to have."""
        current = self.current_of(member)
        return current.state is MemberState.STABLE and current.epoch == self.target_epoch.epoch

    def removal(self, group: str) -> list[ModernChange]:
        """The changes that remove the group; the last one ends it."""
        changes: list[ModernChange] = [CurrentChange(self.type, group, member, None) for member in self.current]
        changes += [TargetChange(self.type, group, member, None) for member in self.targets]
        changes.append(TargetEpochChange(self.type, group, None))
        changes += [SubscriptionChange(self.type, group, member, None) for member in self.subscriptions]
        changes += [RegexChange(self.type, group, regex, None) for regex in self.regexes]
        changes.append(EpochChange(self.type, group, None))
        return changes

    # --- copies ---

    def copy(self) -> ModernState:
        """An independent copy."""
        twin = ModernState(self.type)
        twin.epoch, twin.target_epoch = self.epoch, self.target_epoch
        twin.subscriptions, twin.targets = dict(self.subscriptions), dict(self.targets)
        twin.current, twin.regexes = dict(self.current), dict(self.regexes)
        twin.owners, twin.instances = dict(self.owners), dict(self.instances)
        return twin

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ModernState):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]


def _put(values: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def _places(current: CurrentAssignment | None) -> Iterable[tuple[UUID, int]]:
    if current is not None:
        for assigned in (current.assigned, current.revoking):
            for topic, partitions in assigned.items():
                for partition in partitions:
                    yield topic, partition
