"""What an operator may set about groups. Names and defaults are Kafka's, with one exception.

``group.initial.rebalance.delay.ms`` is 100 here and 3000 in Kafka: consumers that one program starts together still
meet in one generation, and who starts a single consumer does not wait three seconds for it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GroupSettings"]


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits and waits of the group coordinator, in milliseconds and bytes.

    ``may_upgrade`` and ``may_downgrade``: whether a group with members may change between the two protocols.
    """

    initial_rebalance_delay_ms: int = 100
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    may_upgrade: bool = True
    may_downgrade: bool = True
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_segment_bytes: int = 104_857_600
