"""Which segments a partition may forget: oldest first, never the active one, never what is not yet visible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.log.segment import Segment

if TYPE_CHECKING:
    from headrace.log.partition import PartitionLog

__all__ = ["expired_segments"]


def expired_segments(partition: PartitionLog, now_ms: int) -> list[Segment]:
    """The leading segments that are too old, too much, or before the log start."""
    config = partition.config
    excess = partition.size - config.retention_bytes if config.delete and config.retention_bytes >= 0 else 0
    expired: list[Segment] = []
    for segment in partition.segments[:-1]:
        if segment.end_offset > min(partition.high_watermark, partition.synced_offset):
            break
        before_start = segment.end_offset <= partition.log_start
        too_old = (
            config.delete and config.retention_ms >= 0 and 0 <= segment.max_timestamp < now_ms - config.retention_ms
        )
        too_much = excess >= segment.size > 0
        if not (before_start or too_old or too_much):
            break
        expired.append(segment)
        excess -= segment.size
    return expired
