"""What is known of groups and offsets: the fold of ``__consumer_offsets``.

The same ``apply`` is used for records as they are written and as they are replayed, in the order of the log.
"""

from __future__ import annotations

from headrace.broker.groups.records import Change, CommittedOffset, GroupMetadata, OffsetChange

__all__ = ["GroupState"]

_SIMPLE_GROUP = GroupMetadata()


class GroupState:
    """Groups by id, and each group's offsets by (topic, partition).

    A committed offset makes a group of its own (a *simple* group, without members) if there was none; such a group goes
    with its last offset. A group that has had members stays until it is removed itself. So the state is the same
    whether compaction has passed over the log or not.
    """

    __slots__ = ("groups", "offsets")

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadata] = {}
        self.offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}

    def apply(self, change: Change) -> None:
        """Take one change in."""
        if isinstance(change, OffsetChange):
            self._apply_offset(change)
        elif change.value is None:
            self.groups.pop(change.group, None)
        else:
            self.groups[change.group] = change.value

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
        if change.group not in self.groups:
            self.groups[change.group] = _SIMPLE_GROUP

    def copy(self) -> GroupState:
        """An independent copy."""
        twin = GroupState()
        twin.groups = dict(self.groups)
        twin.offsets = {group: dict(offsets) for group, offsets in self.offsets.items()}
        return twin

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupState) and self.groups == other.groups and self.offsets == other.offsets
