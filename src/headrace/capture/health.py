"""How the database's side of a capture is doing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Health", "alarm"]

ALARM_BYTES = 1 << 30
"""When nothing limits what the database keeps for us, and it keeps more than this: an alarm."""


@dataclass(frozen=True, slots=True)
class Health:
    """What was seen."""

    lag_bytes: int | None = None
    """How far behind the end of the database's log we are."""
    retained_bytes: int | None = None
    """How much of its log the database keeps for us."""
    keep_bytes: int = -1
    """How much it keeps at most before it gives us up; -1: until its disk is full."""
    refusal: str | None = None
    """Why going on from the stored position would lose changes."""


def alarm(health: Health) -> str | None:
    """A warning before the database's disk fills, or before it gives the capture up."""
    kept = health.retained_bytes or 0
    if health.keep_bytes > 0 and kept > health.keep_bytes // 2:
        return (
            f"the database keeps {kept >> 20} MiB of its log for this capture and gives it up at "
            f"{health.keep_bytes >> 20} MiB: capture must catch up, or max_slot_wal_keep_size be raised"
        )
    if health.keep_bytes <= 0 and kept > ALARM_BYTES:
        return (
            f"the database keeps {kept >> 20} MiB of its log for this capture, and nothing limits it: its disk may "
            "fill (resume the capture, remove it, or set max_slot_wal_keep_size)"
        )
    return None
