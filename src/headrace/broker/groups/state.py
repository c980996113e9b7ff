"""What is known of groups and offsets: the fold of ``__consumer_offsets``.

The same ``apply`` is used for records as they are written and as they are replayed, in the order of the log.
"""

from __future__ import annotations

from headrace.broker.groups.modern_records import EpochChange, ModernChange
from headrace.broker.groups.modern_state import ModernState
from headrace.broker.groups.records import (
    Change,
    CommittedOffset,
    GroupChange,
    GroupMetadata,
    OffsetChange,
    TransactionalOffset,
    TransactionEnd,
)

__all__ = ["GroupState"]

_SIMPLE_GROUP = GroupMetadata()


class GroupState:
    """Groups by id, and each group's offsets by (topic, partition).

    ``groups`` has the classic ones, ``modern`` consumer groups and share groups; a group is in one of them. A committed
    offset makes a group of its own (a *simple* group, without members) if there was none; such a group goes with its
    last offset. A group that has had members stays until it is removed itself. So the state is the same whether
    compaction has passed over the log or not. Offsets of open transactions wait by producer id.
    """

    __slots__ = ("groups", "modern", "offsets", "pending")

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadata] = {}
        self.modern: dict[str, ModernState] = {}
        self.offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self.pending: dict[int, dict[tuple[str, str, int], CommittedOffset]] = {}

    def apply(self, change: Change) -> None:
        """Take one change in."""
        if isinstance(change, OffsetChange):
            self._apply_offset(change)
        elif isinstance(change, TransactionalOffset):
            group, topic, partition, value = change.change
            if value is not None:
                self.pending.setdefault(change.producer_id, {})[group, topic, partition] = value
        elif isinstance(change, TransactionEnd):
            pending = self.pending.pop(change.producer_id, {})
            if change.commit:
                for place, value in pending.items():
                    self._apply_offset(OffsetChange(*place, value))
        elif isinstance(change, GroupChange):
            self._apply_group(change)
        else:
            self._apply_modern(change)

    def _apply_group(self, change: GroupChange) -> None:
        if change.value is not None:
            self.groups[change.group] = change.value
        elif self.groups.pop(change.group, None) is not None:
            self._ensure_simple(change.group)

    def _apply_modern(self, change: ModernChange) -> None:
        group = change.group
        known = self.modern.get(group)
        if known is None or known.type is not change.type:
            if change.value is None:
                return
            known = self.modern[group] = ModernState(change.type)
            if self.groups.get(group) is _SIMPLE_GROUP:
                del self.groups[group]
        known.apply(change)
        if isinstance(change, EpochChange) and change.value is None:
            del self.modern[group]
            self._ensure_simple(group)

    def _ensure_simple(self, group: str) -> None:
        """Offsets make a group, if there is no other."""
        if group in self.offsets and group not in self.groups and group not in self.modern:
            self.groups[group] = _SIMPLE_GROUP

    def _apply_offset(self, change: OffsetChange) -> None:
        place = (change.topic, change.partition)
        offsets = self.offsets.get(change.group)
        if change.value is None:
            if offsets is not None and offsets.pop(place, None) is not None and not offsets:
                del self.offsets[change.group]
                if self.groups.get(change.group) is _SIMPLE_GROUP:
                    del self.groups[change.group]
            return
        if offsets is None:
            offsets = self.offsets[change.group] = {}
        offsets[place] = change.value
        self._ensure_simple(change.group)

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has an offset for this place."""
        return any((group, topic, partition) in offsets for offsets in self.pending.values())

    def has_pending(self, group: str) -> bool:
        """Whether an open transaction has an offset of this group."""
        return any(place[0] == group for offsets in self.pending.values() for place in offsets)

    def copy(self) -> GroupState:
        """An independent copy."""
        twin = GroupState()
        twin.groups = dict(self.groups)
        twin.modern = {group: state.copy() for group, state in self.modern.items()}
        twin.offsets = {group: dict(offsets) for group, offsets in self.offsets.items()}
        twin.pending = {producer_id: dict(offsets) for producer_id, offsets in self.pending.items()}
        return twin

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GroupState):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)
