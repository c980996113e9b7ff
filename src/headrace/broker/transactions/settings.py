"""What an operator may set about transactions. Names and defaults are Kafka's."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TransactionSettings"]


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Limits and waits of the transaction coordinator, in milliseconds and bytes."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    expiry_check_interval_ms: int = 3_600_000
    state_topic_segment_bytes: int = 104_857_600
