"""What consumer groups and share groups have in common: members, epochs, a target, and everyone's way there.

An object of this kind is one piece of work on a group: a request, or what a timer asks for. It starts from the group's
state, tries its changes out on a copy, and collects them in ``changes``. Whoever asked for it writes them to the log,
where they become true, or drops them. No I/O, no timers, and nothing to undo.

The *group epoch* grows when members or subscriptions change, or the topics behind them. Then an assignor makes a new
*target*, for that epoch. Each member is led there by its own heartbeats (``reconciliation.py``) and has the epoch of
the target that it has reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, Protocol
from uuid import UUID

from headrace.broker.groups.assignors import Assignor, Members
from headrace.broker.groups.codes import Code, Refusal
from headrace.broker.groups.modern_messages import ModernPhase
from headrace.broker.groups.modern_records import (
    CurrentAssignment,
    CurrentChange,
    EpochChange,
    GroupEpoch,
    GroupType,
    ModernChange,
    Subscription,
    SubscriptionChange,
    TargetChange,
    TargetEpoch,
    TargetEpochChange,
)
from headrace.broker.groups.modern_state import ModernState

__all__ = ["ModernGroup", "ModernSettings", "Surroundings", "TopicInfo", "Topics", "phase_of"]


class TopicInfo(NamedTuple):
    """A topic as groups see it."""

    id: UUID
    partitions: int


class Topics(Protocol):
    """The topics that there are."""

    def find(self, name: str, /) -> TopicInfo | None:
        """A topic by its name."""
        ...

    def name_of(self, topic_id: UUID, /) -> str | None:
        """The name of a topic, if it still exists."""
        ...

    def names(self) -> Iterable[str]:
        """The names that a regular expression may stand for."""
        ...


@dataclass(frozen=True, slots=True)
class ModernSettings:
    """What may be set for one group, in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a group needs to know besides itself. ``moved``: topics may have changed since the last look."""

    topics: Topics
    settings: ModernSettings
    now_ms: int
    new_id: Callable[[], str]
    moved: bool = True


class ModernGroup:
    """A piece of work on one group; ``changes`` is what comes of it."""

    type: GroupType

    def __init__(self, group_id: str, state: ModernState | None, around: Surroundings) -> None:
        self.group_id = group_id
        self.changes: list[ModernChange] = []
        self.around = around
        self._found = state
        self._draft: ModernState | None = None

    @property
    def state(self) -> ModernState:
        """The group with the changes so far."""
        if self._draft is not None:
            return self._draft
        if self._found is None:
            self._found = ModernState(self.type)
        return self._found

    def do(self, change: ModernChange) -> None:
        """Change the group."""
        if self._draft is None:
            self._draft = self.state.copy()
        self._draft.apply(change)
        self.changes.append(change)

    # --- members ---

    def ensure_room(self, member_id: str) -> None:
        """Refuse one member too many."""
        most = self.around.settings.max_size
        if len(self.state.subscriptions) >= most and member_id not in self.state.subscriptions:
            raise Refusal(Code.GROUP_MAX_SIZE_REACHED, f"The group has reached its maximum capacity of {most} members.")

    def known(self, member_id: str) -> Subscription:
        """A member; Refusal if it is none."""
        subscription = self.state.subscriptions.get(member_id)
        if subscription is None:
            raise Refusal(Code.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return subscription

    def subscribe(self, member_id: str, subscription: Subscription) -> bool:
        """Take in what a member says of itself; True if it wants other topics than before."""
        old = self.state.subscriptions.get(member_id)
        if subscription != old:
            self.do(SubscriptionChange(self.type, self.group_id, member_id, subscription))
        known = old or Subscription("", "")
        return set(subscription.topics) != set(known.topics)

    def set_current(self, member_id: str, current: CurrentAssignment) -> None:
        """Note what a member has."""
        if current != self.state.current.get(member_id):
            self.do(CurrentChange(self.type, self.group_id, member_id, current))

    def remove(self, member_ids: Iterable[str]) -> None:
        """Strike members off, and begin a new epoch."""
        for member_id in member_ids:
            self.strike_off(member_id)
        self.refresh(bump=True)

    def strike_off(self, member_id: str) -> None:
        """Remove all that is known of a member."""
        for change in (CurrentChange, TargetChange, SubscriptionChange):
            self.do(change(self.type, self.group_id, member_id, None))

    # --- epochs and targets ---

    def refresh(self, *, bump: bool) -> None:
        """Begin a new epoch if that is asked for, or if topics behind the subscriptions have changed."""
        state = self.state
        metadata_hash = self.metadata_hash() if bump or self.around.moved else state.epoch.metadata_hash
        if bump or metadata_hash != state.epoch.metadata_hash:
            epoch = GroupEpoch(state.epoch.epoch + 1, metadata_hash)
            self.do(EpochChange(self.type, self.group_id, epoch))

    def assign_at_ms(self) -> int | None:
        """When the next target may be made; None if there is no need for one."""
        target = self.state.target_epoch
        if target.epoch >= self.state.epoch.epoch or not self.state.subscriptions:
            return None
        return target.at_ms + self.around.settings.assignment_interval_ms if target.at_ms else 0

    def assign(self) -> None:
        """Make a new target, if the epoch asks for it and the last one is old enough."""
        due_ms = self.assign_at_ms()
        if due_ms is None or due_ms > self.around.now_ms:
            return
        state = self.state
        members, counts = self._members()
        targets = self.assignor()(members, counts, state.targets)
        for member_id, target in targets.items():
            if target != state.targets.get(member_id):
                self.do(TargetChange(self.type, self.group_id, member_id, target))
        epoch = TargetEpoch(state.epoch.epoch, self.around.now_ms)
        self.do(TargetEpochChange(self.type, self.group_id, epoch))

    def assignor(self) -> Assignor:
        """Who makes the target."""
        raise NotImplementedError

    def subscribed_ids(self, subscription: Subscription) -> frozenset[UUID]:
        """The ids of those topics of a subscription that exist."""
        found = map(self.around.topics.find, self.state.topics_of(subscription))
        return frozenset(info.id for info in found if info is not None)

    def _members(self) -> tuple[Members, Mapping[UUID, int]]:
        """Members in a fixed order, static ones first, with what they subscribe to; and how large the topics are."""
        state = self.state
        infos = {name: info for name in state.topics() if (info := self.around.topics.find(name)) is not None}
        ids: dict[frozenset[str], frozenset[UUID]] = {}
        members = {}
        order = sorted(
            state.subscriptions.items(), key=lambda item: (item[1].instance_id is None, item[1].instance_id or item[0])
        )
        for member_id, subscription in order:
            names = state.topics_of(subscription)
            if names not in ids:
                ids[names] = frozenset(infos[name].id for name in names if name in infos)
            members[member_id] = ids[names]
        return members, dict(infos.values())

    def metadata_hash(self) -> int:
        """Changes when a topic behind the subscriptions comes, goes, or grows."""
        digest = blake2b(digest_size=8)
        found = False
        for name in sorted(self.state.topics()):
            info = self.around.topics.find(name)
            if info is not None:
                found = True
                digest.update(name.encode() + b"\0" + info.id.bytes + info.partitions.to_bytes(4, "big"))
        return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


def phase_of(state: ModernState) -> ModernPhase:
    """Where a group is. A share group's members need no reconciling."""
    if not state.subscriptions:
        return ModernPhase.EMPTY
    if state.type is GroupType.SHARE:
        return ModernPhase.STABLE
    if state.epoch.epoch > state.target_epoch.epoch:
        return ModernPhase.ASSIGNING
    if all(map(state.is_reconciled, state.subscriptions)):
        return ModernPhase.STABLE
    return ModernPhase.RECONCILING
