"""Which offsets are too old to keep.

A group that has had members keeps its offsets for the retention time after the last of them left; a group without
membership (a *simple* group) after each offset's commit; a stable group of consumers drops those of topics that no
member reads any more, after their commit. A commit into an empty group counts as a sign of life for its partition, too
(Kafka would forget it with the rest).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.broker.groups.group import ClassicGroup
from headrace.broker.groups.messages import Phase
from headrace.broker.groups.modern_state import ModernState
from headrace.broker.groups.records import CommittedOffset

__all__ = ["expired", "expired_in_consumer_group"]

Offsets = Mapping[tuple[str, int], CommittedOffset]


def expired(group: ClassicGroup, offsets: Offsets, now_ms: int, retention_ms: int) -> Iterator[tuple[str, int]]:
    """The (topic, partition) places whose offsets are to be removed."""
    since_ms = -1
    if group.protocol_type is not None:
        if group.phase is Phase.EMPTY:
            since_ms = group.state_ms
        elif group.phase is not Phase.STABLE or not group.uses_consumer_protocol() or group.subscribed is None:
            return
    for place, committed in offsets.items():
        if group.is_subscribed(place[0]):
            continue
        if _is_old(committed, since_ms, now_ms, retention_ms):
            yield place


def expired_in_consumer_group(
    state: ModernState, offsets: Offsets, now_ms: int, retention_ms: int
) -> Iterator[tuple[str, int]]:
    """The places of a consumer group whose offsets are to be removed: of topics that nobody in it reads any more."""
    topics = state.topics()
    for place, committed in offsets.items():
        if place[0] not in topics and _is_old(committed, -1, now_ms, retention_ms):
            yield place


def _is_old(committed: CommittedOffset, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_ms != -1:
        return now_ms >= committed.expire_ms
    return now_ms - max(since_ms, committed.commit_ms) >= retention_ms
